-- Opens a generation whose keys have been built, by writing the head last.
--
-- KEYS  1 head, 2 the build's marker
-- ARGV  1 generation, 2 seq, 3 chain, 4 the build's nonce
-- Returns 'OPENED', 'LOST' (the marker is gone: Redis lost keys while they were built) or 'OVERTAKEN' (the head
-- is of this generation or a later one).
-- Idempotent: a second run is OVERTAKEN and changes nothing.

if redis.call('GET', KEYS[2]) ~= ARGV[4] then return 'LOST' end
local generation = redis.call('HGET', KEYS[1], 'generation')
if generation and tonumber(generation) >= tonumber(ARGV[1]) then return 'OVERTAKEN' end
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'seq', ARGV[2], 'chain', ARGV[3])
redis.call('DEL', KEYS[2])
return 'OPENED'
