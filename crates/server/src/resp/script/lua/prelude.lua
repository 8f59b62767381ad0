-- What scripts find that is written in Lua, and how they are called. The functions of the argument are ours.
local ours, globals, pcall, xpcall, resume, next, rawset, setmetatable = ...

local function ended(ok, ...)
    if ok then return true, ... end
    return false, ours.caught((...))
end

local function seen(ok, ...)
    if ok then return true, ... end
    return false, ours.shown((...))
end

local made = {}

function made.pcall(...)
    return ended(pcall(...))
end

function made.xpcall(f, handler)
    return seen(xpcall(f, function(e) return handler(ours.shown(e)) end))
end

function made.resume(...)
    return seen(resume(...))
end

-- A table that shows another one, and takes nothing. All of them by themselves, and in a row.
local shields, row = {}, {}
local function shield(of)
    local meta = { __index = of, __newindex = ours.refuse_write, __metatable = false }
    local shielded = setmetatable({}, meta)
    shields[shielded] = true
    row[#row + 1] = shielded
    return shielded
end

function made.rawset(t, k, v)
    if shields[t] then ours.refuse_raw_write() end
    return rawset(t, k, v)
end

local function run(script, keys, arguments)
    globals.KEYS, globals.ARGV = keys, arguments
    return xpcall(script, ours.failed)
end

-- Library functions write into a table without asking it.
local function clean()
    globals.KEYS, globals.ARGV, globals.table = nil, nil, nil
    for i = 1, #row do
        local key = next(row[i])
        while key ~= nil do
            rawset(row[i], key, nil)
            key = next(row[i])
        end
    end
end

return made, shield, run, clean
