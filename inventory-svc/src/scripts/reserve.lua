-- Holds all lines or none.
--
-- KEYS  1 head, 2 stream, 3 outcome, 4 expiry index, 5.. one stock hash per line
-- ARGV  1-6 see prelude, 7 reservation id, 8 lines, 9 the ledger's word on the id, 10 fingerprint,
--       11 expires (ms), 12 customer, 13 the ledger's word on missing SKUs: 'unasked' | 'none' | 'known',
--       14.. one quantity per line
-- Returns see prelude and outcome; and
--   {'REUSED'}            the id was used with other lines or another customer
--   {'MISSING', indices}  these lines' SKUs (from 1, joined by commas) have no counters here: ask the ledger
--                         whether it knows them and call again; nothing was changed
-- Idempotent: the first outcome is recorded under the id, refusals included, and every repeat is answered from
-- that record. Only a hold that outlived its time changes on a repeat: it is ended, once, and stays expired.

local head, fenced = fence()
if not head then return fenced end

local record = recorded()
if record then
  if record.fingerprint ~= '' and record.fingerprint ~= ARGV[10] then return {'REUSED'} end
  if record.state == 'HELD' and lapsed(record) then
    return end_hold(head, record, 'EXPIRE', 'EXPIRED', 13)
  end
  return answer(record)
end
if ARGV[9] == 'unasked' then return {'UNKNOWN_ID'} end
-- The ledger has a live hold and Redis does not: Redis lost it.
if ARGV[9] == 'held' then return {'FENCED', 'HOLD_MISSING'} end

local lines, held, missing, short = #KEYS - 4, {}, {}, {}
for i = 1, lines do
  local found = redis.call('HMGET', KEYS[4 + i], 'received', 'held', 'sold')
  if not found[1] and not found[2] and not found[3] then
    missing[#missing + 1] = i
  elseif not (found[1] and found[2] and found[3]) then
    return {'FENCED', 'COUNTER_MISSING'}
  else
    held[i] = tonumber(found[2]) + tonumber(ARGV[13 + i])
    if held[i] + tonumber(found[3]) > tonumber(found[1]) then short[#short + 1] = i end
  end
end
if #missing > 0 and ARGV[13] == 'unasked' then return {'MISSING', table.concat(missing, ',')} end
if #missing > 0 and ARGV[13] == 'known' then return {'FENCED', 'COUNTER_MISSING'} end

if #missing > 0 or #short > 0 then
  -- A refusal moves nothing and takes no seq. It is remembered here only; losing it is harmless.
  record = {state = 'REFUSED', fingerprint = ARGV[10], movement = '', lines = ARGV[8], expires = '',
    refusal = 'INSUFFICIENT_STOCK', refused = table.concat(short, ',')}
  if #missing > 0 then
    record.refusal, record.refused = 'UNKNOWN_SKU', table.concat(missing, ',')
  end
  redis.call('HSET', KEYS[3], 'state', record.state, 'fingerprint', record.fingerprint, 'lines', record.lines,
    'refusal', record.refusal, 'refused', record.refused, 'customer', ARGV[12])
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  return answer(record)
end
if backlogged() then return {'BACKLOGGED'} end

local position, seq = append(head, {'kind', 'RESERVE', 'id', ARGV[7], 'from', '', 'lines', ARGV[8],
  'fingerprint', ARGV[10], 'expires', ARGV[11], 'customer', ARGV[12]})
for i = 1, lines do
  redis.call('HSET', KEYS[4 + i], 'held', integer(held[i]), 'seq', seq)
end
-- No TTL: a live hold is known for as long as it is held.
redis.call('HSET', KEYS[3], 'state', 'HELD', 'fingerprint', ARGV[10], 'movement', position, 'lines', ARGV[8],
  'expires', ARGV[11], 'customer', ARGV[12])
redis.call('ZADD', KEYS[4], ARGV[11], ARGV[7])
return {'RECORD', 'HELD', ARGV[10], position, ARGV[8], ARGV[11], '', ''}
