-- Sells what a reservation holds.
--
-- KEYS  1 head, 2 stream, 3 outcome, 4 expiry index, 5.. one stock hash per line of the hold
-- ARGV  1-6 see prelude, 7 reservation id, 8 lines, 9 the ledger's word on the id, 10.. one quantity per line
-- Returns see prelude and outcome. The caller is answered by the state: CONFIRMED is success.
-- Idempotent: only HELD becomes CONFIRMED, and a repeat finds CONFIRMED. A hold that lapsed, was refused or is
-- unknown becomes EXPIRED, which is recorded before it is told, so that the id can never be held again.

local head, fenced = fence()
if not head then return fenced end

local record = recorded()
if not record then
  if ARGV[9] == 'unasked' then return {'UNKNOWN_ID'} end
  if ARGV[9] == 'held' then return {'FENCED', 'HOLD_MISSING'} end
  return leave_mark(head, nil, 'EXPIRE', 'EXPIRED')
end
if record.state == 'REFUSED' then return leave_mark(head, record, 'EXPIRE', 'EXPIRED') end
if record.state ~= 'HELD' then return answer(record) end
if lapsed(record) then return end_hold(head, record, 'EXPIRE', 'EXPIRED', 9) end
return end_hold(head, record, 'CONFIRM', 'CONFIRMED', 9)
