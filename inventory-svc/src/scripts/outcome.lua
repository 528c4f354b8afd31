-- What reserve, confirm, release and expire share; it is put between the prelude and the script's own file.
--
-- KEYS  3 the reservation's recorded outcome (hash), 4 expiry index (sorted set, ms → reservation id),
--       5.. one stock hash per line, in the order of the lines
-- ARGV  7 reservation id, 8 lines ("sku=quantity" joined by newlines, merged and sorted),
--       9 what the ledger says about the id: 'unasked' | 'none' | 'held'
-- Returns, beside the prelude's:
--   {'RECORD', state, fingerprint, movement, lines, expires, refusal, refused lines} the outcome as it now stands
--   {'LINES', lines}  the hold has these lines: call again with their keys; nothing was changed
--   {'UNKNOWN_ID'}    no outcome is recorded here: ask the ledger and call again; nothing was changed

local function recorded()
  local found = redis.call('HMGET', KEYS[3], 'state', 'fingerprint', 'movement', 'lines', 'expires', 'refusal',
    'refused', 'customer')
  if not found[1] then return nil end
  return {
    state = found[1], fingerprint = found[2] or '', movement = found[3] or '', lines = found[4] or '',
    expires = found[5] or '', refusal = found[6] or '', refused = found[7] or '', customer = found[8] or '',
  }
end

local function answer(record)
  return {'RECORD', record.state, record.fingerprint, record.movement, record.lines, record.expires,
    record.refusal, record.refused}
end

local function lapsed(record)
  return tonumber(ARGV[3]) >= tonumber(record.expires)
end

-- Ends a hold: its units leave `held`, and are sold when `to` is CONFIRMED. `quantities` is how many arguments
-- stand before the first line's quantity.
local function end_hold(head, record, kind, to, quantities)
  if ARGV[8] ~= record.lines then return {'LINES', record.lines} end
  if backlogged() then return {'BACKLOGGED'} end
  local lines, held, sold = #KEYS - 4, {}, {}
  for i = 1, lines do
    local found = redis.call('HMGET', KEYS[4 + i], 'received', 'held', 'sold')
    local quantity = tonumber(ARGV[quantities + i])
    -- What is held must be counted; a counter that is missing or too low means that Redis lost something.
    if not (found[1] and found[2] and found[3]) then return {'FENCED', 'COUNTER_MISSING'} end
    held[i] = tonumber(found[2]) - quantity
    if held[i] < 0 then return {'FENCED', 'COUNTER_TOO_LOW'} end
    sold[i] = tonumber(found[3])
    if to == 'CONFIRMED' then sold[i] = sold[i] + quantity end
  end

  local position, seq = append(head, {'kind', kind, 'id', ARGV[7], 'from', 'HELD', 'lines', record.lines,
    'fingerprint', record.fingerprint, 'expires', record.expires, 'customer', record.customer})
  for i = 1, lines do
    redis.call('HSET', KEYS[4 + i], 'held', integer(held[i]), 'sold', integer(sold[i]), 'seq', seq)
  end
  redis.call('ZREM', KEYS[4], ARGV[7])
  redis.call('HSET', KEYS[3], 'state', to, 'movement', position)
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  record.state, record.movement = to, position
  return answer(record)
end

-- Writes a final state for an id that holds nothing: unknown, refused or expired. It moves no units, but the
-- ledger must know it, for it says what a late Reserve of the id will be told.
local function leave_mark(head, record, kind, to)
  if backlogged() then return {'BACKLOGGED'} end
  local mark, from = record, ''
  if not record then
    mark = {fingerprint = '', lines = '', expires = '', customer = ''}
  elseif record.state == 'REFUSED' then
    mark.lines, mark.expires = '', ''
  else
    from = record.state
  end

  local position = append(head, {'kind', kind, 'id', ARGV[7], 'from', from, 'lines', '',
    'fingerprint', mark.fingerprint, 'expires', mark.expires, 'customer', mark.customer})
  redis.call('HSET', KEYS[3], 'state', to, 'movement', position, 'fingerprint', mark.fingerprint,
    'lines', mark.lines, 'expires', mark.expires, 'refusal', '', 'refused', '', 'customer', mark.customer)
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  mark.state, mark.movement, mark.refusal, mark.refused = to, position, '', ''
  return answer(mark)
end
