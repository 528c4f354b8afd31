-- Corrects the number received, up or down, but never below what is held and sold.
--
-- KEYS  1 head, 2 stream, 3 outcome of the request, 4 stock hash
-- ARGV  1-6 see prelude, 7-14 see change
-- Returns see prelude and change; refusals are UNKNOWN_SKU and INSUFFICIENT_STOCK.
-- Idempotent: the outcome, a refusal too, is recorded under the request id, and a repeat is answered from it.

local head, fenced = fence()
if not head then return fenced end

local outcome = recorded_change()
if outcome then return outcome end
if ARGV[14] == 'unasked' then return {'UNKNOWN_ID'} end

local now, refusal = counters()
if refusal then return refusal end
if not now then return refuse('UNKNOWN_SKU') end
now.received = now.received + tonumber(ARGV[10])
if now.received > tonumber(ARGV[13]) then return {'TOO_MUCH'} end
if now.received < now.held + now.sold then return refuse('INSUFFICIENT_STOCK') end
if backlogged() then return {'BACKLOGGED'} end
return change(head, 'ADJUST', now)
