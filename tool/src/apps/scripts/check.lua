-- Of each size, all values must be the same.
local seen, wrong = {}, 0
for _, key in ipairs(redis.call('keys', '*')) do
    local value = redis.call('get', key)
    local first = seen[#value]
    if first == nil then
        seen[#value] = value
    elseif first ~= value then
        wrong = wrong + 1
    end
end
local sizes = {}
for size in pairs(seen) do sizes[#sizes + 1] = size end
table.sort(sizes)
return 'sizes ' .. table.concat(sizes, ' ') .. ' wrong ' .. wrong
