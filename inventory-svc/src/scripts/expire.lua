-- Ends a hold that outlived its time; the backstop for callers that never came back.
--
-- KEYS  1 head, 2 stream, 3 outcome, 4 expiry index, 5.. one stock hash per line of the hold
-- ARGV  1-6 see prelude, 7 reservation id, 8 lines, 9 unused, 10.. one quantity per line
-- Returns see prelude and outcome.
-- Idempotent: only a HELD reservation past its time becomes EXPIRED. Anything else is left as it is.

local head, fenced = fence()
if not head then return fenced end

local record = recorded()
-- The index names only live holds, and a live hold always has its record.
if not record then
  if redis.call('ZSCORE', KEYS[4], ARGV[7]) then return {'FENCED', 'HOLD_MISSING'} end
  return {'UNKNOWN_ID'}
end
if record.state == 'HELD' and lapsed(record) then
  return end_hold(head, record, 'EXPIRE', 'EXPIRED', 9)
end
return answer(record)
