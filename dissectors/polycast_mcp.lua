-- Control messages of mcp and mcpd: TCP, port 4139, inside TLS where there is a key (docs/wire.md, mcp
-- control messages). With a key, Wireshark needs the TLS secrets to look inside.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local PORT = 4139
local HEADER_LEN = 8
local IDENTIFIER = 0x504d4350
local TYPES = {
	"HELLO", "WELCOME", "OFFER", "ENTRIES", "HELD", "SCANNED", "SUGGEST", "PORT", "PLAN", "RUNS",
	"READY", "PROGRESS", "DIGEST", "DONE", "VERIFIED", "FAILED", "KEEPALIVE", "BLOCKS", "FEED", "FED", "LINK",
	"MULTICAST", "LISTEN",
}
-- Longest bodies; 128 for the others.
local LONGEST = {
	ENTRIES = 65528, HELD = 65528, RUNS = 65528, BLOCKS = 65528, MULTICAST = 1096, FAILED = 520, HELLO = 256, WELCOME = 256,
}
local KINDS = { [1] = "folder", [2] = "file", [3] = "symbolic link" }
local CARRIERS = { [17] = "UDP", [6] = "IP" }
local STATUS = { [0] = "the digest follows", [1] = "changed while it was read", [2] = "could not be read" }
local LINK_STATES = {
	[0] = "open", [1] = "unreachable", [2] = "closed", [3] = "wrong bytes", [4] = "gone", [5] = "refused", [6] = "expected",
}
local REASONS = {
	"interrupted", "protocol", "silent", "busy", "too large", "name", "no space", "permission",
	"something in the way", "locked", "storage", "no common port", "capability", "data connection",
	"mismatch", "changed", "closed",
}
local MAX_BLOCKS, MAX_RUNS, MAX_RUNS_PER_FRAME, MAX_HELD, MAX_SUGGESTIONS = 2 ^ 28, 2 ^ 16, 2048, 1024, 16
local MIN_MEMBERS, MAX_MEMBERS = 2, 64

local mcp = polycast.protocol("mcp", "mcp control (polycast)", {
	version = { "uint8", "Version", base.DEC },
	type = { "uint8", "Type", base.DEC, TYPES },
	body_length = { "uint32", "Length of the body", base.DEC },
	identifier = { "string", "Identifier", base.ASCII },
	lowest = { "uint8", "Lowest version", base.DEC },
	highest = { "uint8", "Highest version", base.DEC },
	chosen = { "uint8", "Version chosen", base.DEC },
	capabilities = { "uint16", "Capabilities", base.HEX },
	aead = { "bool", "AEAD", 16, nil, 0x0001 },
	udp = { "bool", "Data over UDP", 16, nil, 0x0002 },
	ip = { "bool", "Data as IP protocol 6", 16, nil, 0x0004 },
	max_entries = { "uint32", "Most entries", base.DEC },
	max_bytes = { "uint64", "Most bytes", base.DEC },
	prepares = { "bool", "Listens for the data at once", 16, nil, 0x0008 },
	fed = { "bool", "Takes blocks over links", 16, nil, 0x0010 },
	feeds = { "bool", "Feeds other hosts", 16, nil, 0x0020 },
	islands = { "bool", "Multicasts to hosts on its link", 16, nil, 0x0040 },
	appended = { "bytes", "Of a later version" },
	copy = { "bytes", "Copy" },
	entries = { "uint32", "Entries", base.DEC },
	bytes = { "uint64", "Bytes of all files", base.DEC },
	kind = { "uint8", "Kind", base.DEC, KINDS },
	mode = { "uint16", "Mode", base.OCT },
	path_length = { "uint16", "Length of the path", base.DEC },
	target_length = { "uint16", "Length of the target", base.DEC },
	nanoseconds = { "uint32", "Written (ns)", base.DEC },
	seconds = { "int64", "Written (s since 1970)", base.DEC },
	length = { "uint64", "Length of the file", base.DEC },
	path = { "string", "Path", base.UNICODE },
	target = { "string", "Target", base.UNICODE },
	first = { "uint64", "First block", base.DEC },
	count = { "uint64", "Blocks", base.DEC },
	digest = { "bytes", "Digest" },
	blocks = { "uint64", "Blocks named in all HELD", base.DEC },
	number = { "uint16", "Number of the suggestion", base.DEC },
	carrier = { "uint8", "Carrier", base.DEC, CARRIERS },
	source_port = { "uint16", "Source port", base.DEC },
	destination_port = { "uint16", "Destination port", base.DEC },
	confirmed = { "uint16", "Verdict", base.DEC, { [0] = "confirmed", [1] = "taken, try this one" } },
	port = { "uint16", "Port", base.DEC },
	flag_aead = { "bool", "AEAD", 8, nil, 0x01 },
	flag_relay = { "bool", "Links may be arranged", 8, nil, 0x02 },
	flag_sealed = { "bool", "Sealed", 8, nil, 0x01 },
	flag_alone = { "bool", "No longer in an island", 8, nil, 0x02 },
	flags = { "uint8", "Flags", base.HEX },
	group = { "ipv6", "Group" },
	runs = { "uint32", "Runs", base.DEC },
	stream_length = { "uint64", "Bytes of the data stream", base.DEC },
	key = { "bytes", "Key of the data" },
	received = { "uint64", "Bytes of the data stream that arrived", base.DEC },
	held = { "uint64", "Bytes in place or held", base.DEC },
	entry = { "uint32", "Entry", base.DEC },
	status = { "uint8", "Status", base.DEC, STATUS },
	reason = { "uint16", "Reason", base.DEC, REASONS },
	link = { "bytes", "Link" },
	island = { "bytes", "Island" },
	secret = { "bytes", "Secret of the link or island" },
	child = { "ipv6", "Address of the child" },
	members = { "uint8", "Members", base.DEC },
	member = { "ipv6", "Address of a member" },
	head = { "ipv6", "Address of the head" },
	link_state = { "uint8", "State of the link", base.DEC, LINK_STATES },
	round_trip = { "uint32", "Round trip (us)", base.DEC },
	block = { "uint64", "Block", base.DEC },
	text = { "string", "Explanation", base.UNICODE },
})

local function zero(value)
	return value == UInt64(0)
end

local function capabilities(reader)
	local range = reader:field("capabilities", 2)
	for _, name in ipairs({ "aead", "udp", "ip", "prepares", "fed", "feeds", "islands" }) do
		reader.tree:add(mcp.fields[name], range)
	end
end

local function identifier(reader)
	local range = reader:text("identifier", 4)
	reader:expect(range:uint() == IDENTIFIER, "another protocol")
end

-- Later versions may append fields to HELLO and WELCOME.
local function appended(reader)
	if reader:left() > 0 then
		reader:field("appended", reader:left())
	end
end

local function carrier(reader)
	reader:expect(CARRIERS[reader:number("carrier", 1)], "unknown carrier")
end

local PREPARED_LENGTH = 40

local function prepared(reader)
	carrier(reader)
	local flags = reader:number("flags", 1)
	reader:bits({ "flag_aead" })
	reader:zero(2)
	local source = reader:number("source_port", 2)
	local destination = reader:number("destination_port", 2)
	local key = reader:field("key", 32)
	reader:expect(flags <= 1, "unknown flags")
	reader:expect(flags == 1 or polycast.is_zero(key), "a key without AEAD")
	reader:expect(source > 0 and destination > 0, "port 0")
end

local body = {}

function body.HELLO(reader)
	identifier(reader)
	local lowest = reader:number("lowest", 1)
	local highest = reader:number("highest", 1)
	reader:expect(lowest > 0 and highest >= lowest, "no versions")
	capabilities(reader)
	if reader:left() >= PREPARED_LENGTH then
		prepared(reader)
	end
	appended(reader)
end

function body.WELCOME(reader)
	identifier(reader)
	reader:expect(reader:number("chosen", 1) > 0, "no version")
	reader:zero(1)
	capabilities(reader)
	reader:number("max_entries", 4)
	reader:number("max_bytes", 8)
	appended(reader)
end

function body.OFFER(reader)
	reader:field("copy", 16)
	reader:expect(reader:number("entries", 4) > 0, "no entries")
	reader:number("bytes", 8)
end

local function one_entry(part, item)
	local kind = part:number("kind", 1)
	part:zero(1)
	part:number("mode", 2)
	local path_length = part:number("path_length", 2)
	local target_length = part:number("target_length", 2)
	part:number("nanoseconds", 4)
	part:number("seconds", 8)
	local length = part:number("length", 8)
	local path = part:text("path", path_length)
	if target_length > 0 then
		part:text("target", target_length)
	end
	part:expect(KINDS[kind], "unknown kind")
	part:expect(kind == 2 or zero(length), "a length, and not a file")
	part:expect((kind == 3) == (target_length > 0), "target and kind disagree")
	part:expect(path_length > 0, "no path")
	item:append_text(": " .. (KINDS[kind] or "?") .. " " .. path:string())
end

function body.ENTRIES(reader)
	reader:expect(reader:left() > 0, "no entries")
	while reader:left() > 0 do
		reader:branch("Entry", one_entry)
	end
end

function body.HELD(reader)
	local first = reader:number("first", 8)
	local count = reader:left() / 32
	reader:expect(count >= 1 and count <= MAX_HELD and count % 1 == 0, "not a list of up to 1024 digests")
	reader:expect(first:tonumber() + count <= MAX_BLOCKS, "more blocks than a copy has")
	for _ = 1, math.floor(count) do
		reader:field("digest", 32)
	end
end

body.BLOCKS = body.HELD

local function link(reader)
	reader:field("link", 16)
	reader:field("secret", 32)
end

local function sealed(reader)
	local flags = reader:number("flags", 1)
	reader:bits({ "flag_sealed" })
	reader:expect(flags <= 1, "unknown flags")
end

-- An address in hexadecimal, of 8 digits for IPv4, and whether it is multicast.
local function address(reader, name)
	local hex = reader:field(name, 16):bytes():tohex():lower()
	local digits = hex:gsub("^" .. ("0"):rep(20) .. "ffff", "")
	local is_multicast = #digits == 8 and digits:find("^e") or #digits == 32 and digits:find("^ff")
	return digits, is_multicast
end

-- The address of a host; returns it.
local function host(reader, name)
	local digits, is_multicast = address(reader, name)
	reader:expect(not is_multicast and digits:find("[^0]"), "no address of a host")
	return digits
end

function body.FEED(reader)
	link(reader)
	host(reader, "child")
	reader:expect(reader:number("port", 2) > 0, "port 0")
	sealed(reader)
	reader:zero(1)
end

function body.FED(reader)
	link(reader)
	local flags = reader:number("flags", 1)
	reader:bits({ "flag_sealed", "flag_alone" })
	reader:expect(flags <= 3, "unknown flags")
	reader:zero(3)
end

-- What MULTICAST and LISTEN start with; returns a reader of a host of that IP version.
local function island(reader)
	reader:field("island", 16)
	reader:field("secret", 32)
	local group, is_multicast = address(reader, "group")
	reader:expect(is_multicast, "the group is not multicast")
	local source = reader:number("source_port", 2)
	local destination = reader:number("destination_port", 2)
	reader:expect(source > 0 and destination > 0, "port 0")
	sealed(reader)
	return function(name)
		reader:expect(#host(reader, name) == #group, "a host and the group are of different IP versions")
	end
end

function body.MULTICAST(reader)
	local member = island(reader)
	local members = reader:number("members", 1)
	reader:zero(2)
	reader:expect(members >= MIN_MEMBERS and members <= MAX_MEMBERS, "not 2 to 64 members")
	reader:expect(reader:left_on_wire() == members * 16, "the length is not that of the members")
	while reader:left() > 0 do
		member("member")
	end
	return members .. " members"
end

function body.LISTEN(reader)
	local head = island(reader)
	reader:zero(3)
	head("head")
end

function body.LINK(reader)
	reader:field("link", 16)
	local state = reader:number("link_state", 1)
	reader:zero(3)
	local round_trip = reader:number("round_trip", 4)
	local block = reader:number("block", 8)
	reader:expect(LINK_STATES[state], "unknown state")
	reader:expect(state == 0 or round_trip == 0, "a round trip of a link that is not open")
	reader:expect(state == 3 or state == 4 or zero(block), "a block, and none is wrong or gone")
	reader:expect(block:tonumber() < MAX_BLOCKS, "more blocks than a copy has")
	return LINK_STATES[state]
end

function body.SCANNED(reader)
	reader:number("blocks", 8)
end

local function suggestion(reader)
	local number = reader:number("number", 2)
	reader:expect(number >= 1 and number <= MAX_SUGGESTIONS, "more suggestions than are made")
end

function body.SUGGEST(reader)
	suggestion(reader)
	carrier(reader)
	reader:zero(1)
	local source = reader:number("source_port", 2)
	local destination = reader:number("destination_port", 2)
	reader:expect(source > 0 and destination > 0, "port 0")
end

function body.PORT(reader)
	suggestion(reader)
	reader:expect(reader:number("confirmed", 2) <= 1, "unknown verdict")
	reader:expect(reader:number("port", 2) > 0, "port 0")
	reader:zero(2)
end

function body.PLAN(reader)
	carrier(reader)
	local flags = reader:number("flags", 1)
	reader:bits({ "flag_aead", "flag_relay" })
	reader:zero(2)
	local group, is_multicast = address(reader, "group")
	reader:expect(is_multicast or group == ("0"):rep(32), "the group is not multicast")
	local source = reader:number("source_port", 2)
	local destination = reader:number("destination_port", 2)
	local runs = reader:number("runs", 4)
	local length = reader:number("stream_length", 8)
	local key = reader:field("key", 32)
	reader:expect(flags <= 3, "unknown flags")
	reader:expect(flags % 2 == 1 or polycast.is_zero(key), "a key without AEAD")
	reader:expect(runs <= MAX_RUNS, "more runs than a copy has")
	reader:expect((runs == 0) == zero(length), "runs and bytes disagree")
	local links_only = flags >= 2 and source == 0 and destination == 0
	reader:expect(runs == 0 or links_only or (source > 0 and destination > 0), "port 0")
end

function body.RUNS(reader)
	local count = reader:left() / 16
	reader:expect(count >= 1 and count <= MAX_RUNS_PER_FRAME and count % 1 == 0, "not a list of up to 2048 runs")
	while reader:left() > 0 do
		reader:branch("Run", function(part, item)
			local first = part:number("first", 8)
			local blocks = part:number("count", 8)
			local stop = first:tonumber() + blocks:tonumber()
			part:expect(not zero(blocks) and stop <= MAX_BLOCKS, "more blocks than a copy has, or none")
			item:append_text(string.format(": %s blocks from %s", tostring(blocks), tostring(first)))
		end)
	end
end

function body.PROGRESS(reader)
	reader:number("received", 8)
	reader:number("held", 8)
end

function body.DIGEST(reader)
	reader:number("entry", 4)
	local status = reader:number("status", 1)
	reader:zero(3)
	local digest = reader:field("digest", 32)
	reader:expect(STATUS[status], "unknown status")
	reader:expect(status == 0 or polycast.is_zero(digest), "a digest of a file that has none")
end

function body.DONE(reader)
	reader:number("received", 8)
	reader:number("bytes", 8)
	reader:field("digest", 32)
end

function body.FAILED(reader)
	local reason = reader:number("reason", 2)
	reader:zero(2)
	local entry, item = reader:number("entry", 4)
	if entry == 0xffffffff then
		item:append_text(" (none)")
	end
	reader:expect(REASONS[reason], "unknown reason")
	if reader:left() > 0 then
		local text = reader:text("text", reader:left())
		reader:expect(not text:bytes():raw():find("%c"), "control characters in a text")
	end
	return REASONS[reason]
end

local function message(reader)
	reader:expect(reader:number("version", 1) == 1, "another protocol, or another version of it")
	local kind = TYPES[reader:number("type", 1)]
	if not kind then
		reader:stop_here("unknown type")
	end
	reader:zero(2)
	local length = reader:number("body_length", 4)
	reader:expect(length <= (LONGEST[kind] or 128), "a longer body than its type has")
	reader:expect(length == reader:left_on_wire(), "the length is not that of the body")
	local more = body[kind] and body[kind](reader)
	reader:finish()
	return more and kind .. ": " .. more or kind
end

local function one(tvb, pinfo, tree)
	local info, reader = polycast.dissect(mcp, tvb, tree, message)
	pinfo.cols.protocol = "mcp"
	pinfo.cols.info:append(" " .. polycast.summary(info, reader))
	return tvb:captured_len()
end

-- What is no message of ours is one message up to its end, which is then refused.
local function message_length(tvb, pinfo, offset)
	if tvb(offset, 1):uint() ~= 1 or tvb(offset + 4, 4):uint() > 65528 then
		return tvb:len() - offset
	end
	return HEADER_LEN + tvb(offset + 4, 4):uint()
end

function mcp.proto.dissector(tvb, pinfo, tree)
	pinfo.cols.info = ""
	dissect_tcp_pdus(tvb, tree, HEADER_LEN, message_length, one)
	return tvb:captured_len()
end

DissectorTable.get("tcp.port"):add(PORT, mcp.proto)
DissectorTable.get("tls.port"):add(PORT, mcp.proto)
