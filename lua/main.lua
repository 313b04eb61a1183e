-- One call, its keys in KEYS; or many in turn, each seeing the writes of those before it: the number of a call's keys,
-- the keys, its packed arguments, and so on.
if #ARGV == 1 then
  local _, reply = decide(KEYS, 1, ARGV[1], 1, 0)
  return reply
end
local replies, at = {}, 1
while at < #ARGV do
  local number = tonumber(ARGV[at])
  local _, reply = decide(ARGV, at + 1, ARGV[at + number + 1], 1, 0)
  replies[#replies + 1], at = reply, at + number + 2
end
return replies
