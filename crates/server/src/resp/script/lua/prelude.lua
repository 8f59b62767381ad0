-- Library functions for scripts that are written in Lua, and functions that call scripts. Those in `ours` are Rust.
local ours, globals, pcall, xpcall, resume, next, rawset, setmetatable, sort, type, error = ...

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

function made.resume(co, ...)
    if type(co) ~= "thread" then ours.refuse_resume() end
    return seen(resume(co, ...))
end

-- Lua's own sort compares up to n * n times, and no hook interrupts it while it runs no Lua instruction. So the
-- comparison passed to it is always a Lua function.
function made.sort(...)
    local t, less = ...
    local counted = less
    if less == nil then
        counted = function(a, b) return a < b end
    elseif not ours.is_of_lua(less) then
        counted = function(a, b) return less(a, b) end
    end
    local ok, raised
    if type(t) == "table" then
        ok, raised = pcall(sort, t, counted)
    else
        ok, raised = pcall(sort, ...)
    end
    if ok then return end
    ours.sort_failed(raised)
    error(raised, 0)
end

-- A shield gives read-only access to a table. All shields are kept as a set (`shields`) and as a list (`row`).
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
    if type(t) ~= "table" then ours.refuse_rawset(t) end
    return rawset(t, k, v)
end

local function run(script, keys, arguments)
    globals.KEYS, globals.ARGV = keys, arguments
    return xpcall(script, ours.failed)
end

-- Library functions may write into shields, because they bypass metatables.
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
