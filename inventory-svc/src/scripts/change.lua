-- What receive and adjust share; it is put between the prelude and the script's own file.
--
-- KEYS  3 the request's recorded outcome (hash), 4 the SKU's stock hash
-- ARGV  7 request id, 8 fingerprint, 9 line ("sku=delta"), 10 delta, 11 reason,
--       12 the ledger's word on the SKU: 'unasked' | 'none' | 'known', 13 the most that may ever be received,
--       14 the ledger's word on the request id: 'unasked' | 'none'
-- Returns, beside the prelude's:
--   {'CHANGED', movement, received, held, sold, seq}  the counters right after the change
--   {'REFUSED', reason}  refused, and remembered as refused
--   {'REUSED'}           the request id was used for another change
--   {'UNKNOWN_ID'}       no outcome is recorded here: ask the ledger and call again; nothing was changed
--   {'MISSING'}          the SKU has no counters here: ask the ledger and call again; nothing was changed
--   {'TOO_MUCH'}         more would be received than can be counted exactly; nothing was changed

local function recorded_change()
  local found = redis.call('HMGET', KEYS[3], 'fingerprint', 'refusal', 'movement', 'received', 'held', 'sold', 'seq')
  if not found[1] then return nil end
  if found[1] ~= ARGV[8] then return {'REUSED'} end
  if found[2] and found[2] ~= '' then return {'REFUSED', found[2]} end
  return {'CHANGED', found[3], found[4], found[5], found[6], found[7]}
end

-- The counters as numbers; nil where the SKU has none; or nil and the refusal.
local function counters()
  local found = redis.call('HMGET', KEYS[4], 'received', 'held', 'sold')
  if not found[1] and not found[2] and not found[3] then
    if ARGV[12] == 'unasked' then return nil, {'MISSING'} end
    if ARGV[12] == 'known' then return nil, {'FENCED', 'COUNTER_MISSING'} end
    return nil
  end
  if not (found[1] and found[2] and found[3]) then return nil, {'FENCED', 'COUNTER_MISSING'} end
  return {received = tonumber(found[1]), held = tonumber(found[2]), sold = tonumber(found[3])}
end

local function refuse(reason)
  redis.call('HSET', KEYS[3], 'fingerprint', ARGV[8], 'refusal', reason)
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  return {'REFUSED', reason}
end

local function change(head, kind, now)
  local received, held, sold = integer(now.received), integer(now.held), integer(now.sold)
  local position, seq = append(head, {'kind', kind, 'id', ARGV[7], 'from', '', 'lines', ARGV[9], 'fingerprint', ARGV[8],
    'reason', ARGV[11], 'counters', received .. ',' .. held .. ',' .. sold})
  redis.call('HSET', KEYS[4], 'received', received, 'held', held, 'sold', sold, 'seq', seq)
  redis.call('HSET', KEYS[3], 'fingerprint', ARGV[8], 'movement', position, 'received', received, 'held', held,
    'sold', sold, 'seq', seq)
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  return {'CHANGED', position, received, held, sold, seq}
end
