-- Gives back what a reservation holds, or leaves a tombstone where it holds nothing.
--
-- KEYS  1 head, 2 stream, 3 outcome, 4 expiry index, 5.. one stock hash per line of the hold
-- ARGV  1-6 see prelude, 7 reservation id, 8 lines, 9 the ledger's word on the id, 10.. one quantity per line
-- Returns see prelude and outcome. The caller is answered by the state: RELEASED is success.
-- Idempotent: whatever is not sold becomes RELEASED once, and a repeat finds RELEASED.

local head, fenced = fence()
if not head then return fenced end

local record = recorded()
if not record then
  if ARGV[9] == 'unasked' then return {'UNKNOWN_ID'} end
  if ARGV[9] == 'held' then return {'FENCED', 'HOLD_MISSING'} end
  return leave_mark(head, nil, 'RELEASE', 'RELEASED')
end
if record.state == 'RELEASED' or record.state == 'CONFIRMED' then return answer(record) end
if record.state == 'HELD' then return end_hold(head, record, 'RELEASE', 'RELEASED', 9) end
return leave_mark(head, record, 'RELEASE', 'RELEASED')
