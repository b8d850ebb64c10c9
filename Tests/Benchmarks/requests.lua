-- The requests of all rows, for wrk: `wrk -s requests.lua URL -- KIND USERS [padded]`. Server and peer get the same
-- script, so that the client's share of the two cores is the same. The environment's RATE is of requests per second at
-- most. The last lines it prints are for programs:
-- RESULT requests/s, p99 in microseconds, p99.9, requests, failures.
-- LATENCY p50 in microseconds, maximum.

local threads = 0
local all = {}

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
    table.insert(all, thread)
    for _, each in ipairs(all) do each:set("siblings", threads) end
end

local users, format = 0, string.format
-- Of every request, after its path.
local fields

local function user()
    return "user" .. math.random(0, users - 1)
end

-- wrk.format takes longer than some servers do.
local function get(path)
    return "GET " .. path .. fields .. "\r\n"
end

local function post(path, body)
    return "POST " .. path .. fields .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
end

local kinds = {}

function kinds.get()
    return get("/v1/profiles/" .. user())
end

-- A database of many users has their numbers padded, so that they could be imported in order.
function kinds.padded()
    return get(format("/v1/profiles/user%08d", math.random(0, users - 1)))
end

function kinds.lookup()
    return post("/ups/lookup", '{"user_id":"' .. user() .. '"}')
end

-- The whole map, one variation changed, as SDKs save it.
function kinds.save()
    local index = math.random(0, users - 1)
    return post("/ups/save", format(
        '{"user_id":"user%d","experiment_bucket_map":{"10001":{"variation_id":"%d"},"10002":{"variation_id":"%d"},"7001":{"variation_id":"7001%d"}}}',
        index, math.random(20000, 29999), 30000 + index % 89, 1 + index % 2))
end

function kinds.mixed()
    if math.random(1, 100) <= 5 then return kinds.save() end
    return kinds.get()
end

function kinds.decide()
    return post("/v1/decide?keys=checkout_flag", '{"userId":"' .. user() .. '","userAttributes":{"country":"us","age":32}}')
end

-- The same user and flag as a provider of OpenFeature asks for them.
function kinds.ofrep()
    return post("/ofrep/v1/evaluate/flags/checkout_flag",
        '{"context":{"targetingKey":"' .. user() .. '","country":"us","age":32}}')
end

local count, started = 0, os.time()

-- Each request is of a user who was never seen.
function kinds.assign()
    count = count + 1
    return post("/v1/assign", format(
        '{"user_id":"new-%d-%d-%d","experiment":"checkout","attributes":{"country":"us","age":32}}', started, number, count))
end

-- The same as a decision: its assignment and its first exposure are both written.
function kinds.expose()
    count = count + 1
    return post("/v1/decide?keys=checkout_flag", format(
        '{"userId":"seen-%d-%d-%d","userAttributes":{"country":"us","age":32}}', started, number, count))
end

-- A goal that counts, if `decide` has exposed the users.
function kinds.goal()
    count = count + 1
    return post("/v1/events", format(
        '{"id":"%d-%d-%d","user_id":"%s","goal":"purchase","value":9.5}', started, number, count, user()))
end

-- Every user once, in an order that visits the database's pages at random; then again.
local function next_user()
    count = count + 1
    return "user" .. ((count * 2 + number) * 7919) % users
end

function kinds.scan()
    return get("/v1/profiles/" .. next_user())
end

-- `decide` of every user once; then again.
function kinds.visit()
    return post("/v1/decide?keys=checkout_flag",
        '{"userId":"' .. next_user() .. '","userAttributes":{"country":"us","age":32}}')
end

-- Milliseconds until the thread's next request is due. wrk asks whether there is such a function when it loads the script.
local rate = tonumber(os.getenv("RATE"))
if rate then
    local ffi = require("ffi")
    ffi.cdef("typedef struct { long s, ns; } timespec; int clock_gettime(int, timespec *);")
    local time, due = ffi.new("timespec"), nil
    function delay()
        ffi.C.clock_gettime(1, time)
        local now = tonumber(time.s) * 1000 + tonumber(time.ns) / 1000000
        -- What was missed is made up for, but not more than a second of it.
        due = math.max((due or now) + 1000 * siblings / rate, now - 1000)
        return math.max(due - now, 0)
    end
end

function init(arguments)
    users = tonumber(arguments[2] or "200000")
    math.randomseed(os.time() * 16 + number)
    local kind = kinds[arguments[1]]
    -- Lua's generator begins with numbers that hardly depend on its seed.
    for _ = 1, 10 do math.random() end
    fields = " HTTP/1.1\r\nHost: " .. wrk.headers["Host"]
        .. "\r\nContent-Type: application/json\r\nX-Optimizely-SDK-Key: benchmark\r\n"
    request = kind
    if arguments[3] == "padded" then
        user = function() return format("user%08d", math.random(0, users - 1)) end
    end
end

function done(summary, latency)
    local errors = summary.errors
    local failures = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    print(format("RESULT %.0f %.0f %.0f %d %d", summary.requests / summary.duration * 1e6,
        latency:percentile(99), latency:percentile(99.9), summary.requests, failures))
    print(format("LATENCY %.0f %.0f", latency:percentile(50), latency.max))
end
