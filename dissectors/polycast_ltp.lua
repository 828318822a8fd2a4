-- LTP over UDP, and inside DyRAM packets (docs/wire.md, LTP packets). It has no port of its own:
-- sessions are recognised by their SYNC, REQUEST, REPORT ... packets; "Decode As" works too.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local DATA, REPAIR, SYNC, DIGESTS, REQUEST, REPORT, REPORT_ACK, PACE, FEEDBACK, PARITY = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local TYPES = {
	[DATA] = "DATA", [REPAIR] = "REPAIR", [SYNC] = "SYNC", [DIGESTS] = "DIGESTS",
	[REQUEST] = "REQUEST", [REPORT] = "REPORT", [REPORT_ACK] = "REPORT_ACK",
	[PACE] = "PACE", [FEEDBACK] = "FEEDBACK", [PARITY] = "PARITY",
}
local KINDS = { [0] = "packets", [1] = "digests", [2] = "SYNC", [3] = "what lies to the left", [4] = "packets or parity" }
local STATUS = { [0] = "joined", [1] = "progress", [2] = "complete", [3] = "failed", [4] = "leaving" }
local VERDICTS = { [0] = "noted", [1] = "digest mismatch", [2] = "table full", [3] = "token only", [4] = "too slow" }
local SYNC_LEN, DIGESTS_LEN, REQUEST_LEN, PACE_LEN, ECHO_LEN, FEEDBACK_LEN, MAC_LEN = 96, 20, 40, 44, 16, 60, 16
local SYNC_FLAGS = {
	"flag_end", "flag_digest", "flag_integrity", "flag_reports",
	"flag_answer", "flag_closing", "flag_stalled", "flag_stream",
}

local ltp = polycast.protocol("ltp", "LTP (polycast)", {
	version = { "uint8", "Version", base.DEC, nil, 0xf0 },
	type = { "uint8", "Type", base.DEC, TYPES, 0x0f },
	flags = { "uint8", "Flags", base.HEX },
	flag_end = { "bool", "END: the length is final", 8, nil, 0x01 },
	flag_digest = { "bool", "DIGEST: that of the whole is known", 8, nil, 0x02 },
	flag_integrity = { "bool", "INTEGRITY: digests of blocks are sent", 8, nil, 0x04 },
	flag_reports = { "bool", "REPORTS: receivers report", 8, nil, 0x08 },
	flag_answer = { "bool", "ANSWER: carries the nonce of a request", 8, nil, 0x10 },
	flag_closing = { "bool", "CLOSING: the source is leaving", 8, nil, 0x20 },
	flag_left = { "bool", "LEFT: what lies to the left of the first block", 8, nil, 0x20 },
	flag_stalled = { "bool", "STALLED: the source waits for reports", 8, nil, 0x40 },
	flag_stream = { "bool", "STREAM: of a length nobody knows yet", 8, nil, 0x80 },
	tag = { "uint16", "Tag", base.HEX },
	session = { "uint32", "Session", base.HEX },
	sequence = { "uint32", "Sequence", base.DEC },
	flag_numbered = { "bool", "The transmission has a number", 8, nil, 0x01 },
	transmission = { "uint32", "Number of the transmission", base.DEC },
	payload = { "bytes", "Payload" },
	block = { "uint32", "Block", base.DEC },
	index = { "uint8", "Which parity of the block", base.DEC },
	packets = { "uint8", "Packets of the block", base.DEC },
	shard = { "bytes", "Parity" },
	silence = { "uint16", "Longest silence (ms)", base.DEC },
	oldest = { "uint64", "Oldest packet held", base.DEC },
	next = { "uint64", "Next packet", base.DEC },
	length = { "uint64", "Length of the content (bytes)", base.DEC },
	digested = { "uint64", "Blocks with digests", base.DEC },
	first_sequence = { "uint32", "Sequence of packet 0", base.DEC },
	payload_length = { "uint16", "Payload of a data packet (bytes)", base.DEC },
	block_exponent = { "uint8", "Block size (log2)", base.DEC, nil, 0x7f },
	flag_parity = { "bool", "The source answers with parity too", 8, nil, 0x80 },
	name_length = { "uint8", "Length of the name", base.DEC },
	progress_blocks = { "uint32", "Report every (blocks)", base.DEC },
	report_window = { "uint32", "Spread reports over (us)", base.DEC },
	nonce = { "uint64", "Nonce", base.HEX },
	digest = { "bytes", "Digest" },
	name = { "string", "Name", base.UNICODE },
	first_block = { "uint32", "First block", base.DEC },
	kind = { "uint8", "Asks for", base.DEC, KINDS },
	lo = { "uint32", "First missing", base.DEC },
	hi = { "uint32", "Last missing", base.DEC },
	number = { "uint32", "Request number", base.DEC },
	round_trip = { "uint32", "Round-trip time (us)", base.DEC },
	token = { "uint64", "Token", base.HEX },
	status = { "uint8", "Status", base.DEC, STATUS },
	verdict = { "uint8", "Verdict", base.DEC, VERDICTS },
	receiver = { "uint64", "Receiver", base.HEX },
	blocks = { "uint64", "Blocks held from the start on", base.DEC },
	loss_expected = { "uint32", "Packets expected since loss was reported", base.DEC },
	loss_lost = { "uint32", "Packets lost of these", base.DEC },
	digest_start = { "uint64", "Digest of the whole, first 8 bytes", base.HEX },
	flag_slow_start = { "bool", "Slow start", 8, nil, 0x01 },
	round = { "uint16", "Feedback round", base.DEC },
	stamp = { "uint32", "Timestamp (us)", base.DEC },
	max_round_trip = { "uint32", "Longest round-trip time (us)", base.DEC },
	rate = { "uint64", "Rate (bit/s)", base.DEC },
	suppress = { "uint64", "No answer with a higher rate than (bit/s)", base.DEC },
	limiting = { "uint64", "Limiting receiver", base.HEX },
	receivers = { "uint32", "Receivers, at most", base.DEC },
	echo = { "uint32", "Timestamp of the other side (us)", base.DEC },
	held = { "uint32", "Held for (us)", base.DEC },
	loss_event_rate = { "uint32", "Loss event rate (parts of 2^32)", base.DEC },
	received = { "uint64", "Rate received (bit/s)", base.DEC },
	authenticator = { "bytes", "Authenticator" },
})

-- Sessions seen, and whether their control packets end with an authenticator.
local sessions = {}

function ltp.proto.init()
	sessions = {}
end

local function zero(value)
	return value == UInt64(0)
end

-- LTP lets a block have 1 to 64 packets and blocks 2^10 to 2^22 bytes.
local function geometry_fits(exponent, payload)
	return exponent >= 10 and exponent <= 22 and payload > 0 and math.ceil(2 ^ exponent / payload) <= 64
end

local MAX_BLOCKS = 2 ^ 32 - 1

-- How many packets `length` bytes are, in blocks of 2^exponent bytes; nil beyond what a session has.
-- Lengths beyond 2^53 bytes are taken for their nearest number: they are too long anyway.
local function packets_of(length, exponent, payload)
	local block = 2 ^ exponent
	local whole = math.floor(length / block)
	if math.ceil(length / block) > MAX_BLOCKS then
		return nil
	end
	return whole * math.ceil(block / payload) + math.ceil((length - whole * block) / payload)
end

local function sync(reader, flags)
	local set = function(bit) return math.floor(flags / bit) % 2 == 1 end
	reader:bits(SYNC_FLAGS)
	reader:number("silence", 2)
	local session = reader:number("session", 4)
	local oldest = reader:number("oldest", 8)
	local next = reader:number("next", 8)
	local length = reader:number("length", 8)
	local digested = reader:number("digested", 8)
	reader:number("first_sequence", 4)
	local payload = reader:number("payload_length", 2)
	local exponent = reader:number("block_exponent", 1)
	reader:bits({ "flag_parity" })
	local parity = exponent >= 128
	exponent = exponent % 128
	local name_length = reader:number("name_length", 1)
	reader:number("progress_blocks", 4)
	reader:number("report_window", 4)
	local nonce = reader:number("nonce", 8)
	local digest = reader:field("digest", 32)
	local info = string.format("session %08x, packets %s to %s", session, tostring(oldest), tostring(next))
	if name_length > 0 then
		info = info .. ', "' .. reader:text("name", name_length):string() .. '"'
	end
	reader:expect(set(0x01) or zero(length), "a length without END")
	reader:expect(set(0x10) or zero(nonce), "a nonce without ANSWER")
	reader:expect(not set(0x10) or name_length == 0, "an ANSWER with a name")
	reader:expect(set(0x02) or polycast.is_zero(digest), "a digest without DIGEST")
	reader:expect(set(0x01) or not set(0x02), "DIGEST without END")
	reader:expect(set(0x04) or zero(digested), "digested blocks without INTEGRITY")
	reader:expect(set(0x04) or not parity, "parity without INTEGRITY")
	reader:expect(oldest <= next, "the oldest packet is after the next one")
	if not geometry_fits(exponent, payload) then
		reader:refuse("blocks and packets do not fit")
		return info
	end
	local per_block = math.ceil(2 ^ exponent / payload)
	local packets = MAX_BLOCKS * per_block
	if set(0x01) then
		packets = packets_of(length:tonumber(), exponent, payload)
	end
	reader:expect(packets, "longer than a session can be")
	packets = packets or 0
	reader:expect(next:tonumber() <= packets, "more packets than the content has")
	reader:expect(digested:tonumber() <= math.ceil(packets / per_block), "more digests than the content has blocks")
	return info
end

-- Bits set in a number: the subtrees that so many blocks make up.
local function ones(value)
	local count = 0
	while value > 0 do
		count = count + value % 2
		value = math.floor(value / 2)
	end
	return count
end

local function digests(reader, flags, authenticated)
	reader:bits({ "flag_answer", "flag_left" })
	reader:zero(2)
	local session = reader:number("session", 4)
	local first = reader:number("first_block", 4)
	local nonce = reader:number("nonce", 8)
	local bytes = reader:left_on_wire() - authenticated
	reader:expect(flags == 0 or flags == 0x10 or flags == 0x30, "unknown flags")
	reader:expect(flags ~= 0 or zero(nonce), "a nonce without ANSWER")
	reader:expect(bytes % 32 == 0 and bytes <= 64 * 32, "not a list of up to 64 digests")
	local count = math.floor(bytes / 32)
	if flags == 0x30 then
		reader:expect(first ~= 0 and (count == 0 or count == ones(first)), "not the subtrees to the left")
	else
		reader:expect(count > 0, "no digests")
		reader:expect(first + count <= 0xffffffff, "block numbers overflow")
	end
	for _ = 1, count do
		reader:field("digest", 32)
	end
	return string.format("session %08x, %d from block %d", session, count, first)
end

local function range(reader, label)
	reader:branch(label, function(part, item)
		local lo = part:number("lo", 4)
		local hi = part:number("hi", 4)
		item:append_text(string.format(": %d to %d", lo, hi))
		part:expect((hi - lo) % 2 ^ 32 <= 0x7fffffff, "a range that ends before it begins")
	end)
end

local function request(reader, kind, authenticated)
	reader:number("tag", 2)
	local session = reader:number("session", 4)
	local lo, hi = reader:peek(0, 4), reader:peek(4, 4)
	range(reader, "Range")
	local number = reader:number("number", 4)
	reader:number("round_trip", 4)
	reader:number("token", 8)
	reader:number("nonce", 8)
	local rest = reader:left_on_wire() - authenticated
	if kind == 2 then
		reader:expect(polycast.is_zero(lo) and polycast.is_zero(hi), "a range in a request for a SYNC")
		reader:expect(rest == SYNC_LEN - REQUEST_LEN, "not as long as the answer")
		reader:zero(rest)
	elseif kind == 3 then
		reader:expect(lo:uint() ~= 0 and lo:uint() == hi:uint(), "not one block after the first")
		reader:expect(rest == 0, "further ranges")
	else
		reader:expect(KINDS[kind], "unknown kind")
		reader:expect(rest % 8 == 0 and rest / 8 < 32, "not a list of up to 32 ranges")
		for _ = 1, math.floor(rest / 8) do
			range(reader, "Further range")
		end
	end
	return string.format("session %08x, %s %d to %d, number %d", session, KINDS[kind] or "?", lo:uint(), hi:uint(), number)
end

local function report(reader, status)
	reader:number("tag", 2)
	local session = reader:number("session", 4)
	local receiver = reader:number("receiver", 8)
	local blocks = reader:number("blocks", 8)
	reader:number("token", 8)
	reader:expect(STATUS[status], "unknown status")
	if status == 1 then
		local expected = reader:number("loss_expected", 4)
		local lost = reader:number("loss_lost", 4)
		reader:expect(lost <= expected, "more lost than expected")
	else
		local digest = reader:number("digest_start", 8)
		reader:expect(status == 2 or zero(digest), "a digest and not complete")
	end
	return string.format("session %08x, receiver %s %s, %s blocks", session, receiver:tohex(), STATUS[status] or "?", tostring(blocks))
end

local function report_ack(reader, verdict)
	reader:number("tag", 2)
	local session = reader:number("session", 4)
	local receiver = reader:number("receiver", 8)
	reader:number("token", 8)
	reader:expect(VERDICTS[verdict], "unknown verdict")
	return string.format("session %08x, receiver %s: %s", session, receiver:tohex(), VERDICTS[verdict] or "?")
end

local function data(reader, kind, flags)
	reader:bits({ "flag_numbered" })
	reader:expect(flags <= 1, "unknown flags")
	local tag = reader:number("tag", 2)
	reader:expect(kind == REPAIR or tag == 0, "DATA has no tag")
	local session = reader:number("session", 4)
	local sequence = reader:number("sequence", 4)
	local transmission = reader:number("transmission", 4)
	reader:expect(flags == 1 or transmission == 0, "a number without its flag")
	reader:expect(reader:rest("payload") > 0, "no payload")
	return string.format("session %08x, sequence %d", session, sequence)
end

local function parity(reader, flags)
	reader:bits({ "flag_numbered" })
	reader:expect(flags <= 1, "unknown flags")
	reader:number("tag", 2)
	local session = reader:number("session", 4)
	local block = reader:number("block", 4)
	local transmission = reader:number("transmission", 4)
	reader:expect(flags == 1 or transmission == 0, "a number without its flag")
	local index = reader:number("index", 1)
	local packets = reader:number("packets", 1)
	reader:zero(2)
	reader:expect(packets <= 64 and index < packets, "not parity of a block of 1 to 64 packets")
	reader:expect(reader:rest("shard") > 0, "no parity")
	return string.format("session %08x, block %d, %d of %d", session, block, index, packets)
end

local function bits_per_second(value)
	return value == UInt64(0xffffffff, 0xffffffff) and "none" or tostring(value) .. " bit/s"
end

local function pace(reader, flags, authenticated)
	reader:bits({ "flag_slow_start" })
	reader:expect(flags <= 1, "unknown flags")
	local round = reader:number("round", 2)
	local session = reader:number("session", 4)
	reader:number("stamp", 4)
	reader:number("max_round_trip", 4)
	local rate = reader:number("rate", 8)
	reader:number("suppress", 8)
	reader:number("limiting", 8)
	reader:number("receivers", 4)
	reader:expect(not zero(rate), "a rate of 0")
	local rest = reader:left_on_wire() - authenticated
	reader:expect(rest % ECHO_LEN == 0 and rest / ECHO_LEN <= 16, "not a list of up to 16 echoes")
	for _ = 1, math.floor(rest / ECHO_LEN) do
		reader:branch("Echo", function(part, item)
			local receiver = part:number("receiver", 8)
			part:number("echo", 4)
			part:number("held", 4)
			item:append_text(": receiver " .. receiver:tohex())
		end)
	end
	return string.format("session %08x, round %d, %s", session, round, bits_per_second(rate))
end

local function feedback(reader, flags)
	reader:expect(flags == 0, "flags of FEEDBACK are 0")
	local round = reader:number("round", 2)
	local session = reader:number("session", 4)
	local receiver = reader:number("receiver", 8)
	reader:number("token", 8)
	reader:number("stamp", 4)
	reader:number("echo", 4)
	reader:number("held", 4)
	reader:number("round_trip", 4)
	local loss = reader:number("loss_event_rate", 4)
	local rate = reader:number("rate", 8)
	reader:number("received", 8)
	local unlimited = rate == UInt64(0xffffffff, 0xffffffff)
	reader:expect(unlimited == (loss == 0), "a rate without loss, or none with it")
	reader:expect(not zero(receiver), "receiver 0")
	return string.format("session %08x, round %d, receiver %s: %s", session, round, receiver:tohex(), bits_per_second(rate))
end

local SECOND = { [REQUEST] = "kind", [REPORT] = "status", [REPORT_ACK] = "verdict" }

local function packet(reader)
	local version, kind = reader:version_and_type()
	if version ~= 1 then
		reader:stop_here("another version")
	elseif not TYPES[kind] then
		reader:stop_here("unknown type")
	end
	local flags = reader:number(SECOND[kind] or "flags", 1)
	local session = reader:peek(2, 4)
	local known = session and sessions[session:uint()]
	local authenticated = known and known.keyed and MAC_LEN or 0
	local info
	if kind == SYNC then
		info = sync(reader, flags)
		authenticated = reader:left_on_wire() == MAC_LEN and MAC_LEN or 0
	elseif kind == DIGESTS then
		info = digests(reader, flags, authenticated)
	elseif kind == REQUEST then
		info = request(reader, flags, authenticated)
	elseif kind == REPORT then
		info = report(reader, flags)
	elseif kind == REPORT_ACK then
		info = report_ack(reader, flags)
	elseif kind == PACE then
		info = pace(reader, flags, authenticated)
	elseif kind == FEEDBACK then
		info = feedback(reader, flags)
	elseif kind == PARITY then
		authenticated = 0
		info = parity(reader, flags)
	else
		authenticated = 0
		info = data(reader, kind, flags)
	end
	if authenticated > 0 then
		reader:field("authenticator", MAC_LEN)
	end
	reader:finish()
	return TYPES[kind] .. ", " .. info
end

function ltp.proto.dissector(tvb, pinfo, tree)
	local info, reader = polycast.dissect(ltp, tvb, tree, packet)
	polycast.columns(pinfo, "LTP", info, reader)
	return tvb:captured_len()
end

-- Whether a control packet has one of its type's lengths; with an authenticator where `mac` is its length.
local function fits(tvb, kind, mac)
	local length = tvb:reported_len() - mac
	if kind == SYNC then
		return length == SYNC_LEN + tvb(47, 1):uint() and geometry_fits(tvb(46, 1):uint() % 128, tvb(44, 2):uint())
	elseif kind == DIGESTS then
		return length >= DIGESTS_LEN and (length - DIGESTS_LEN) % 32 == 0 and length <= DIGESTS_LEN + 64 * 32
			and tvb(2, 2):uint() == 0 and tvb(1, 1):uint() % 16 == 0
	elseif kind == REQUEST then
		return length >= REQUEST_LEN and (length - REQUEST_LEN) % 8 == 0 and tvb(1, 1):uint() <= 4
	elseif kind == REPORT then
		return length == 40 and tvb(1, 1):uint() <= 4
	elseif kind == PACE then
		return length >= PACE_LEN and (length - PACE_LEN) % ECHO_LEN == 0 and length <= PACE_LEN + 16 * ECHO_LEN
			and tvb(1, 1):uint() <= 1
	elseif kind == FEEDBACK then
		return length == FEEDBACK_LEN and tvb(1, 1):uint() == 0
	end
	return kind == REPORT_ACK and length == 24 and tvb(1, 1):uint() <= 4
end

-- Recognises LTP by a control packet; from its SYNC on, a session's data packets too.
local function heuristic(tvb, pinfo, tree)
	if tvb:captured_len() < 12 or tvb(0, 1):bitfield(0, 4) ~= 1 then
		return false
	end
	local kind, session = tvb(0, 1):bitfield(4, 4), tvb(4, 4):uint()
	if kind == DATA or kind == REPAIR or kind == PARITY then
		if not sessions[session] or tvb(1, 1):uint() > 1 then
			return false
		end
	elseif kind == SYNC then
		if tvb:captured_len() < SYNC_LEN then
			return false
		end
		local keyed = fits(tvb, kind, MAC_LEN)
		if not keyed and not fits(tvb, kind, 0) then
			return false
		end
		sessions[session] = { keyed = keyed }
	elseif not TYPES[kind] or not (fits(tvb, kind, 0) or sessions[session] and fits(tvb, kind, MAC_LEN)) then
		return false
	end
	-- Before other protocols' guesses, for the rest of this conversation.
	pinfo.conversation = ltp.proto
	ltp.proto.dissector(tvb, pinfo, tree)
	return true
end

ltp.proto:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(ltp.proto)
