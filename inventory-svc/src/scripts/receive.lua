-- Adds received units and makes a SKU known.
--
-- KEYS  1 head, 2 stream, 3 outcome of the request, 4 stock hash
-- ARGV  1-6 see prelude, 7-14 see change
-- Returns see prelude and change.
-- Idempotent: the outcome is recorded under the request id, and a repeat is answered from it.

local head, fenced = fence()
if not head then return fenced end

local outcome = recorded_change()
if outcome then return outcome end
if ARGV[14] == 'unasked' then return {'UNKNOWN_ID'} end

local now, refusal = counters()
if refusal then return refusal end
now = now or {received = 0, held = 0, sold = 0}
now.received = now.received + tonumber(ARGV[10])
if now.received > tonumber(ARGV[13]) then return {'TOO_MUCH'} end
if backlogged() then return {'BACKLOGGED'} end
return change(head, 'RECEIVE', now)
