-- One check, or many in turn, each seeing the writes of those before it.
if #ARGV == 1 then
  local _, reply = decide(ARGV[1], 1, 0)
  return reply
end
local replies = {}
for index = 1, #ARGV do
  local _, reply = decide(ARGV[index], 1, 0)
  replies[index] = reply
end
return replies
