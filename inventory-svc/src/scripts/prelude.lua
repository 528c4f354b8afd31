-- The beginning of every script that changes stock; it is put before the script's own file.
--
-- KEYS  1 head hash (generation, seq, chain), 2 stream of the generation, 3 recorded outcome, then as each script says
-- ARGV  1 generation, 2 seq floor, 3 now (ms, the ledger database's clock), 4 nonce, 5 outcome TTL (ms),
--       6 backlog limit (entries), then as each script says. Integers were validated by the caller.
-- Returns an array of strings. Common to all: {'FENCED', why} and {'BACKLOGGED'}; neither changes anything.
--
-- Lua does not roll back, so a script first checks everything and then writes. The first write is always
-- `append`: where Redis refuses writes (memory, read-only replica, an id not above the stream's last) it fails
-- before anything has changed.

local function integer(number)
  return string.format('%.0f', number)
end

-- The head, or nil and the refusal: a head that is missing, of another generation or behind what the caller
-- has already seen means that this Redis is not the one the ledger follows.
local function fence()
  local found = redis.call('HMGET', KEYS[1], 'generation', 'seq', 'chain')
  if not (found[1] and found[2] and found[3]) then return nil, {'FENCED', 'HEAD_MISSING'} end
  if found[1] ~= ARGV[1] then return nil, {'FENCED', 'GENERATION'} end
  if tonumber(found[2]) < tonumber(ARGV[2]) then return nil, {'FENCED', 'SEQ_REGRESSED'} end
  return {seq = tonumber(found[2]), chain = found[3]}
end

-- Whether the ledger is so far behind that no further movement may be made.
local function backlogged()
  return redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[6])
end

-- Writes one movement and advances the head. Returns the movement's position and its seq.
local function append(head, fields)
  local seq = integer(head.seq + 1)
  local position = ARGV[1] .. '-' .. seq
  redis.call('XADD', KEYS[2], position, 'nonce', ARGV[4], 'prev', head.chain, 'at', ARGV[3], unpack(fields))
  redis.call('HSET', KEYS[1], 'seq', seq, 'chain', ARGV[4])
  return position, seq
end
