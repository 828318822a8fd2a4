-- Broadcast Federation: control messages between gateways (TCP 4140), between a control node and its
-- data nodes (TCP 4141), both also inside TLS, and between clients and mediators (UDP, recognised)
-- (docs/wire.md, Federation control messages). The data packets are in polycast_bfed_data.lua.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local PEERS, CLUSTER = 4140, 4141
local IDENTIFIER, HEADER_LEN, MAX_MESSAGE_LEN = 0x6266, 8, 16384
local MAX_GATEWAYS, MAX_PATH, MAX_FLOWS, MAX_NAME_LEN, MAX_ENTRIES = 32, 32, 16, 1024, 12
local MAX_TOKEN_LEN = 1024
local INFINITE = 0xffffffff
local TYPES = {
	[1] = "OPEN", [2] = "KEEPALIVE", [3] = "NOTIFICATION", [4] = "UPDATE", [5] = "END_OF_TABLE",
	[6] = "ECHO_REQUEST", [7] = "ECHO_REPLY",
	[16] = "SROUTE_REQUEST", [17] = "SROUTE_RESPONSE", [18] = "JOIN", [19] = "LEAVE",
	[20] = "TRANSLATION", [21] = "NO_ROUTE", [32] = "REGISTER", [33] = "HEARTBEAT",
	[34] = "SUBSCRIBE_DOWN", [35] = "SUBSCRIBE_UP", [36] = "ALLOCATE", [37] = "ALLOCATE_RESPONSE",
	[38] = "REFRESH", [39] = "RECLAIM", [40] = "STATISTICS", [41] = "LIVENESS", [48] = "REQUEST",
	[49] = "ANSWER",
}
local END_REASONS = {
	"bad_message", "version", "bad_peer", "hold_timer", "out_of_order", "tables", "bad_update",
	"prefix_limit", "too_slow", "shutdown", "collision", "reconfigured", "fenced", "open_timer",
	"silent", "transport",
}
local NO_ROUTE_REASONS = {
	"unreachable", "no_session", "limit", "loop", "timeout", "unknown_owner", "local", "policy",
}
local ATTRIBUTES = { [1] = "COST", [2] = "PATH", [3] = "TAGS" }
local CAPABILITIES = { [1] = "tables", [2] = "graceful restart", [3] = "transport", [4] = "echo" }
local OUTCOMES = { [0] = "done", [1] = "no_session", [2] = "full", [3] = "refused" }
local SROUTE_OUTCOMES = { [0] = "costs", [1] = "the owner tells nothing", [2] = "no session", [3] = "no route" }
local ADDRESSES = { [1] = "UDP over IPv4", [2] = "TCP over IPv4", [3] = "UDP over IPv6", [4] = "TCP over IPv6", [5] = "native", [6] = "QUIC over IPv4", [7] = "QUIC over IPv6" }
local TRANSPORTS = { [1] = "plain", [2] = "quic" }
local EDGES = { [0] = "native", [1] = "peer" }
local WHAT = { [0] = "all of it", [1] = "its receiver", [2] = "its source" }
local LIVENESS = { [0] = "not watched", [1] = "alive", [2] = "silent" }
local WANTS = { [1] = "JOIN", [2] = "LEAVE", [3] = "COST" }
local ANSWERS = { [1] = "TRANSLATION", [2] = "NO_ROUTE", [3] = "REDIRECT", [4] = "COST" }
local TABLES = {}
for number = 0, 11 do
	local metric = ({ "hops", "latency", "bandwidth" })[math.floor(number / 4) + 1]
	local content = math.floor(number / 2) % 2 == 1 and "real-time" or "bulk"
	TABLES[number] = string.format("%s, %s, %s", metric, content, number % 2 == 1 and "many sources" or "one source")
end

local bfed = polycast.protocol("bfed", "Broadcast Federation (polycast)", {
	identifier = { "uint16", "Identifier", base.HEX },
	version = { "uint8", "Version", base.DEC },
	type = { "uint8", "Type", base.DEC, TYPES },
	length = { "uint16", "Length of the message", base.DEC },
	version_low = { "uint8", "Lowest version", base.DEC },
	version_high = { "uint8", "Highest version", base.DEC },
	hold_time = { "uint16", "Hold time (s)", base.DEC },
	network = { "uint32", "Network", base.DEC },
	gateway = { "uint32", "Gateway number", base.DEC },
	boot = { "uint32", "Boot", base.HEX },
	capability = { "uint8", "Capability", base.DEC, CAPABILITIES },
	capability_length = { "uint8", "Length", base.DEC },
	tables = { "uint16", "Tables", base.HEX },
	restart_flags = { "uint16", "Restart flags", base.HEX },
	restarting = { "bool", "I have just restarted", 16, nil, 0x0001 },
	preserved = { "bool", "My trees survived", 16, nil, 0x0002 },
	restart_time = { "uint16", "Restart time (s)", base.DEC },
	unknown = { "bytes", "Unknown" },
	end_reason = { "uint8", "Reason", base.DEC, END_REASONS },
	text_length = { "uint8", "Length of the text", base.DEC },
	text = { "string", "Text", base.UNICODE },
	table = { "uint8", "Table", base.DEC, TABLES },
	count = { "uint16", "Number", base.DEC },
	attributes_length = { "uint16", "Length of attributes", base.DEC },
	attribute_flags = { "uint8", "Attribute flags", base.HEX },
	optional = { "bool", "Optional", 8, nil, 0x80 },
	attribute = { "uint8", "Attribute", base.DEC, ATTRIBUTES },
	attribute_length = { "uint16", "Length", base.DEC },
	cost = { "uint32", "Cost", base.DEC },
	tag = { "uint32", "Tag", base.HEX },
	request = { "uint32", "Request", base.DEC },
	hop_limit = { "uint8", "Hop limit", base.DEC },
	internal = { "uint8", "Between gateways of the owner", base.DEC },
	sroute_outcome = { "uint8", "Outcome", base.DEC, SROUTE_OUTCOMES },
	flags = { "uint8", "Flags", base.HEX },
	sroute_known = { "bool", "SROUTE known", 8, nil, 0x01 },
	label = { "uint32", "Flow label", base.HEX },
	address_kind = { "uint8", "Kind of address", base.DEC, ADDRESSES },
	address_length = { "uint16", "Length of the address", base.DEC },
	address = { "ipv4", "Address" },
	address6 = { "ipv6", "Address" },
	port = { "uint16", "Port", base.DEC },
	certificate = { "bytes", "SHA-256 of the certificate" },
	transport = { "uint8", "Transport", base.DEC, TRANSPORTS },
	native = { "bytes", "Native address" },
	no_route_reason = { "uint8", "Reason", base.DEC, NO_ROUTE_REASONS },
	node = { "uint32", "Data node", base.DEC },
	max_sessions = { "uint32", "Most sessions", base.DEC },
	epoch = { "uint64", "Epoch", base.DEC },
	sequence = { "uint32", "Sequence", base.DEC },
	heartbeat_flags = { "uint32", "Flags", base.HEX },
	draining = { "bool", "Drains", 32, nil, 0x00000001 },
	complete = { "bool", "Complete", 32, nil, 0x00000002 },
	edge = { "uint8", "Edge", base.DEC, EDGES },
	peer = { "uint32", "Peer", base.DEC },
	rate = { "uint64", "Bound on the rate (bit/s)", base.DEC },
	outcome = { "uint8", "Outcome", base.DEC, OUTCOMES },
	what = { "uint8", "What is gone", base.DEC, WHAT },
	sessions = { "uint32", "Sessions", base.DEC },
	forwarded = { "uint64", "Forwarded (bit/s)", base.DEC },
	packets = { "uint64", "Packets received", base.DEC },
	bytes = { "uint64", "Bytes received", base.DEC },
	copies = { "uint64", "Copies sent", base.DEC },
	dropped = { "uint64", "Copies dropped", base.DEC },
	state = { "uint8", "Its data nodes are", base.DEC, LIVENESS },
	nonce = { "uint32", "Nonce", base.HEX },
	want = { "uint8", "Wants", base.DEC, WANTS },
	redirects = { "uint8", "Redirected before", base.DEC },
	answer = { "uint8", "Answer", base.DEC, ANSWERS },
	lifetime = { "uint16", "Lifetime (s)", base.DEC },
	name_length = { "uint16", "Length of the name", base.DEC },
	session = { "string", "Session", base.UNICODE },
	echo_token = { "uint64", "Token", base.HEX },
	token_length = { "uint16", "Length of the token", base.DEC },
	token = { "string", "Token", base.ASCII },
})

local function zero(value)
	return value == UInt64(0)
end

-- The session's name; how many flows it has: what stands between native name and parameters.
local function session(reader)
	local length = reader:number("name_length", 2)
	reader:expect(length <= MAX_NAME_LEN, "a name longer than 1024 bytes")
	local name = reader:text("session", length):string()
	local path = name:match("^bfed://[^/]+/([^?]*)")
	reader:expect(path, "not the name of a session")
	reader.name = name
	local flows = 0
	for _ in (path or ""):gmatch("/[^/]+") do
		flows = flows + 1
	end
	return math.max(flows, 1)
end

local function gateway(reader, label)
	local text
	reader:branch(label, function(part, item)
		local network = part:number("network", 4)
		local number = part:number("gateway", 4)
		part:expect(network ~= 0, "a gateway of network 0")
		text = network .. "." .. number
		item:append_text(": " .. text)
	end)
	return text
end

-- A list, its length in 16 bits before it.
local function list(reader, label, max, read)
	local count, item = reader:number("count", 2)
	item:append_text(" (" .. label .. ")")
	reader:expect(count <= max, "a list longer than " .. max)
	for _ = 1, count do
		read(reader)
	end
	return count
end

local function cost(reader)
	local value, item = reader:number("cost", 4)
	if value == INFINITE then
		item:append_text(" (infinite)")
	end
	return value
end

local function costs(reader)
	local seen = {}
	return list(reader, "costs", MAX_GATEWAYS, function()
		reader:branch("Cost of a gateway", function(part, item)
			local who = gateway(part, "Gateway")
			item:append_text(string.format(": %s costs %d", who, cost(part)))
			part:expect(not seen[who], "a gateway stands twice")
			seen[who] = true
		end)
	end)
end

local function socket(part, kind)
	local v4 = kind <= 2 or kind == 6
	local range = part:field(v4 and "address" or "address6", v4 and 4 or 16)
	local port = part:number("port", 2)
	local first = range(0, 1):uint()
	local multicast = v4 and first >= 224 and first < 240 or not v4 and first == 0xff
	local broadcast = v4 and range:uint() == 0xffffffff
	part:expect(port ~= 0 and not polycast.is_zero(range) and not multicast and not broadcast,
		"not an address to send to")
	if kind >= 6 then
		part:field("certificate", 32)
	end
	part:finish()
end

local function address(reader)
	local kind = reader:number("address_kind", 1)
	reader:zero(1)
	local length = reader:number("address_length", 2)
	local part = reader:part(length)
	if kind == 5 then
		reader:expect(length >= 1 and length <= 512, "a native address of 1 to 512 bytes")
		local bytes, item = part:field("native", length)
		local text = bytes:bytes():raw()
		if not text:find("[^ -~]") then
			item:append_text(" (" .. text .. ")")
		end
	elseif ADDRESSES[kind] then
		socket(part, kind)
	else
		reader:stop_here("unknown kind of address")
	end
	reader.refused = reader.refused or part.refused
end

local function flows(reader)
	return list(reader, "flows", MAX_FLOWS, function()
		reader:branch("Channel", function(part, item)
			local label = part:number("label", 4)
			item:append_text(string.format(": label %08x", label))
			address(part)
		end)
	end)
end

local function text(reader)
	local length = reader:number("text_length", 1)
	reader:expect(length <= 128, "a text longer than 128 bytes")
	if length > 0 then
		local range = reader:text("text", length)
		reader:expect(not range:bytes():raw():find("%c"), "control characters in a text")
	end
end

local function edge(reader)
	local kind = reader:number("edge", 1)
	reader:zero(3)
	if kind == 1 then
		reader:number("peer", 4)
		reader:number("rate", 8)
	elseif kind ~= 0 then
		reader:stop_here("unknown edge")
	end
	return kind
end

local body = {}

local function capability(reader, seen)
	reader:branch("Capability", function(part, item)
		local kind = part:number("capability", 1)
		local length = part:number("capability_length", 1)
		item:append_text(": " .. (CAPABILITIES[kind] or "unknown"))
		part:expect(not (CAPABILITIES[kind] and seen[kind]), "a capability stands twice")
		seen[kind] = true
		if kind == 1 then
			part:expect(length == 2, "tables are two bytes")
			local bits = part:number("tables", 2)
			seen.tables = bits % 4096 ~= 0
		elseif kind == 2 then
			part:expect(length == 4, "graceful restart is four bytes")
			local range = part:field("restart_flags", 2)
			part.tree:add(bfed.fields.restarting, range)
			part.tree:add(bfed.fields.preserved, range)
			part:number("restart_time", 2)
		elseif kind == 3 then
			part:expect(length == 1, "a transport is one byte")
			part:expect(TRANSPORTS[part:number("transport", 1)], "unknown transport")
		elseif kind == 4 then
			part:expect(length == 0, "echo has no value")
		elseif length > 0 then
			part:field("unknown", length)
		end
	end)
end

function body.OPEN(reader)
	local low = reader:number("version_low", 1)
	local high = reader:number("version_high", 1)
	local hold = reader:number("hold_time", 2)
	local who = gateway(reader, "Gateway")
	reader:number("boot", 4)
	local seen = {}
	list(reader, "capabilities", 32, function() capability(reader, seen) end)
	reader:expect(low > 0 and low <= high, "no versions")
	reader:expect(hold == 0 or hold >= 3, "hold time of 1 or 2 seconds")
	reader:expect(seen.tables, "no tables")
	return "gateway " .. who
end

function body.KEEPALIVE()
end

function body.NOTIFICATION(reader)
	local reason = END_REASONS[reader:number("end_reason", 1)]
	reader:expect(reason, "unknown reason")
	text(reader)
	return reason
end

local value = {}

value[1] = function(part, length)
	part:expect(length == 4, "a cost is four bytes")
	part:expect(cost(part) ~= INFINITE, "an infinite cost")
end

value[2] = function(part, length)
	local hops = length / 8
	part:expect(hops >= 1 and hops <= MAX_PATH and hops % 1 == 0, "a path of 1 to 32 gateways")
	local seen = {}
	while part:left() > 0 do
		local who = gateway(part, "Gateway")
		part:expect(not seen[who], "a gateway twice on the path")
		seen[who] = true
		part.last = who
	end
end

value[3] = function(part, length)
	local tags = length / 4
	part:expect(tags >= 1 and tags <= 16 and tags % 1 == 0, "1 to 16 tags")
	while part:left() > 0 do
		part:number("tag", 4)
	end
end

local function attribute(reader, found)
	reader:branch("Attribute", function(branch, item)
		local flags = branch:number("attribute_flags", 1)
		branch:bits({ "optional" })
		local kind = branch:number("attribute", 1)
		local length = branch:number("attribute_length", 2)
		item:append_text(": " .. (ATTRIBUTES[kind] or "unknown"))
		branch:expect(not found[kind], "the attribute stands twice")
		branch:expect(not ATTRIBUTES[kind] or (kind == 3) == (flags >= 0x80), "wrongly optional, or not")
		branch:expect(ATTRIBUTES[kind], "an unknown attribute")
		found[kind] = true
		local part = branch:part(length)
		if value[kind] then
			value[kind](part, length)
		elseif length > 0 then
			part:field("unknown", length)
		end
		part:finish()
		found.last = part.last or found.last
		branch.refused = branch.refused or part.refused
	end)
end

local function route(reader)
	reader:branch("Route", function(branch, item)
		local who = gateway(branch, "Destination")
		item:append_text(": " .. who)
		local attributes = branch:part(branch:number("attributes_length", 2))
		local found = {}
		while attributes:left() > 0 do
			attribute(attributes, found)
		end
		branch:expect(found[1] and found[2], "a route without COST or PATH")
		branch:expect(not found[2] or found.last == who, "the path ends elsewhere")
		branch.refused = branch.refused or attributes.refused
	end)
end

local function table_number(reader)
	local number = reader:number("table", 1)
	reader:expect(TABLES[number], "unknown table")
	return TABLES[number]
end

function body.UPDATE(reader)
	local what = table_number(reader)
	reader:zero(1)
	local withdrawn = list(reader, "withdrawn", 0xffff, function() gateway(reader, "Withdrawn") end)
	local announced = list(reader, "announced", 0xffff, function() route(reader) end)
	return string.format("%s: %d withdrawn, %d announced", what or "?", withdrawn, announced)
end

function body.END_OF_TABLE(reader)
	return table_number(reader)
end

function body.ECHO_REQUEST(reader)
	reader:number("echo_token", 8)
end

body.ECHO_REPLY = body.ECHO_REQUEST

function body.SROUTE_REQUEST(reader)
	local request = reader:number("request", 4)
	gateway(reader, "Towards")
	reader:number("hop_limit", 1)
	reader:expect(reader:number("internal", 1) <= 1, "neither yes nor no")
	local count = list(reader, "gateways", MAX_GATEWAYS, function() gateway(reader, "Gateway") end)
	session(reader)
	reader:expect(request ~= 0 and count > 0, "no request, or no gateways")
end

function body.SROUTE_RESPONSE(reader)
	reader:number("request", 4)
	local outcome = reader:number("sroute_outcome", 1)
	reader:zero(1)
	local count = costs(reader)
	session(reader)
	reader:expect(SROUTE_OUTCOMES[outcome], "unknown outcome")
	reader:expect(outcome == 0 or count == 0, "costs, and another outcome")
end

function body.JOIN(reader)
	local flags = reader:number("flags", 1)
	reader:bits({ "sroute_known" })
	reader:number("hop_limit", 1)
	local known = costs(reader)
	local channels = flows(reader)
	local count = session(reader)
	reader:expect(flags <= 1, "reserved flags are set")
	reader:expect(flags == 1 or known == 0, "costs, and SROUTE not known")
	reader:expect(channels == 0 or channels == count, "not a channel for each flow")
end

function body.LEAVE(reader)
	session(reader)
end

function body.TRANSLATION(reader)
	local hops = list(reader, "path", MAX_PATH, function() gateway(reader, "Gateway") end)
	local channels = flows(reader)
	local count = session(reader)
	reader:expect(hops > 0, "no path")
	reader:expect(channels == count, "not a channel for each flow")
end

function body.NO_ROUTE(reader)
	local reason = NO_ROUTE_REASONS[reader:number("no_route_reason", 1)]
	reader:expect(reason, "unknown reason")
	session(reader)
	return reason
end

function body.REGISTER(reader)
	local node = reader:number("node", 4)
	reader:number("boot", 4)
	reader:number("max_sessions", 4)
	reader:number("epoch", 8)
	return "node " .. node
end

function body.HEARTBEAT(reader)
	local epoch = reader:number("epoch", 8)
	reader:number("sequence", 4)
	local range = reader:field("heartbeat_flags", 4)
	reader.tree:add(bfed.fields.draining, range)
	reader.tree:add(bfed.fields.complete, range)
	reader:expect(range:uint() <= 3, "reserved flags are set")
	return "epoch " .. tostring(epoch)
end

local function subscribe(up)
	return function(reader)
		reader:number("request", 4)
		reader:number("epoch", 8)
		local kind = edge(reader)
		local channels = flows(reader)
		local count = session(reader)
		local fits = channels == count and (kind == 1 or up) or kind == 0 and channels == 0
		reader:expect(fits, "not a channel for each flow")
	end
end

body.SUBSCRIBE_DOWN = subscribe(false)
body.SUBSCRIBE_UP = subscribe(true)

function body.ALLOCATE(reader)
	reader:number("request", 4)
	reader:number("epoch", 8)
	edge(reader)
	reader:expect(TRANSPORTS[reader:number("transport", 1)], "unknown transport")
	reader:zero(1)
	session(reader)
end

function body.ALLOCATE_RESPONSE(reader)
	reader:number("request", 4)
	local outcome = reader:number("outcome", 1)
	reader:zero(1)
	local channels = flows(reader)
	local count = session(reader)
	reader:expect(OUTCOMES[outcome], "unknown outcome")
	reader:expect(channels == 0 or (outcome == 0 and channels == count), "not a channel for each flow")
end

function body.REFRESH(reader)
	reader:number("epoch", 8)
	session(reader)
end

function body.RECLAIM(reader)
	reader:number("epoch", 8)
	local what = reader:number("what", 1)
	reader:zero(3)
	if what == 1 or what == 2 then
		edge(reader)
	end
	reader:expect(WHAT[what], "unknown part of a session")
	session(reader)
end

function body.STATISTICS(reader)
	reader:number("sessions", 4)
	reader:number("forwarded", 8)
	local count = list(reader, "sessions that changed", MAX_ENTRIES, function()
		reader:branch("Session", function(part, item)
			for _, name in ipairs({ "packets", "bytes", "copies", "dropped" }) do
				part:number(name, 8)
			end
			session(part)
			item:append_text(": " .. part.name)
		end)
	end)
	reader.name = nil
	return count .. " sessions changed"
end

function body.LIVENESS(reader)
	local peer = reader:number("peer", 4)
	local state = LIVENESS[reader:number("state", 1)]
	reader:expect(state, "unknown state")
	return string.format("peer %d: %s", peer, state or "?")
end

function body.REQUEST(reader)
	local nonce = reader:number("nonce", 4)
	local want = WANTS[reader:number("want", 1)]
	reader:number("redirects", 1)
	reader:zero(2)
	session(reader)
	if reader:left() > 0 then
		local length = reader:number("token_length", 2)
		reader:expect(length > 0 and length <= MAX_TOKEN_LEN, "a token of 0 or of more than 1024 bytes")
		reader:text("token", length)
	end
	reader:expect(nonce ~= 0, "no nonce")
	reader:expect(want, "unknown request")
	return want
end

function body.ANSWER(reader)
	reader:number("nonce", 4)
	local kind = reader:number("answer", 1)
	reader:zero(1)
	reader:number("lifetime", 2)
	local addresses
	if kind == 1 then
		addresses = list(reader, "addresses", MAX_FLOWS, address)
	elseif kind == 2 then
		reader:zero(3)
		reader:expect(NO_ROUTE_REASONS[reader:number("no_route_reason", 1)], "unknown reason")
	elseif kind == 3 then
		gateway(reader, "Gateway")
		text(reader)
	elseif kind == 4 then
		cost(reader)
	else
		reader:stop_here("unknown answer")
	end
	local count = session(reader)
	reader:expect(not addresses or addresses == count, "not an address for each flow")
	return ANSWERS[kind]
end

local function message(reader)
	reader:expect(reader:number("identifier", 2) == IDENTIFIER, "not a message of the federation")
	reader:expect(reader:number("version", 1) == 1, "another version")
	local kind = TYPES[reader:number("type", 1)]
	local length = reader:number("length", 2)
	reader:zero(2)
	if not kind then
		reader:stop_here("unknown type")
	end
	reader:expect(length >= HEADER_LEN and length <= MAX_MESSAGE_LEN, "no message has that length")
	reader:expect(length == reader.tvb:reported_len(), "the length is not that of the message")
	local info = body[kind](reader)
	reader:finish()
	for _, more in ipairs({ info or false, reader.name or false }) do
		kind = more and kind .. ", " .. more or kind
	end
	return kind
end

local function one(tvb, pinfo, tree)
	local info, reader = polycast.dissect(bfed, tvb, tree, message)
	pinfo.cols.protocol = "BFed"
	pinfo.cols.info:append(" " .. polycast.summary(info, reader))
	return tvb:captured_len()
end

-- What is no message of ours is one message up to its end, which is then refused.
local function message_length(tvb, pinfo, offset)
	local length = tvb(offset + 4, 2):uint()
	if tvb(offset, 2):uint() ~= IDENTIFIER or length < HEADER_LEN or length > MAX_MESSAGE_LEN then
		return tvb:len() - offset
	end
	return length
end

function bfed.proto.dissector(tvb, pinfo, tree)
	pinfo.cols.info = ""
	if pinfo.port_type == 3 then
		return one(tvb, pinfo, tree)
	end
	dissect_tcp_pdus(tvb, tree, HEADER_LEN, message_length, one)
	return tvb:captured_len()
end

-- REQUEST and ANSWER in one datagram, on whatever group or port.
local function heuristic(tvb, pinfo, tree)
	if tvb:captured_len() < HEADER_LEN or tvb(0, 2):uint() ~= IDENTIFIER or tvb(2, 1):uint() ~= 1 then
		return false
	end
	if tvb(4, 2):uint() ~= tvb:reported_len() or not TYPES[tvb(3, 1):uint()] then
		return false
	end
	pinfo.cols.info = ""
	one(tvb, pinfo, tree)
	return true
end

for _, port in ipairs({ PEERS, CLUSTER }) do
	DissectorTable.get("tcp.port"):add(port, bfed.proto)
	DissectorTable.get("tls.port"):add(port, bfed.proto)
end
bfed.proto:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(bfed.proto)
