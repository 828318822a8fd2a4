// One file by NORM (RFC 5740) with the library of its authors, at the setting that serves it best on an
// otherwise idle network: a rate from outside or, where that is 0, congestion control (NORM-CC), big buffers,
// a first estimate of the round trip of one millisecond. In C++ because the library's header is no C in all its releases.
//
//   norm send INTERFACE GROUP PORT FILE BITS_PER_S RECEIVERS PARITY    ends when all receivers have confirmed
//   norm recv INTERFACE GROUP PORT FILE NODE                           stays until it is stopped
//
// PARITY is the number of parity segments sent with each block of 64 before anyone requests them.
//
// Receivers are the nodes 1, 2, ... Parts of a copy lie in the folder FILE.part, which must exist.
// Both tell what happens as JSON, one event a line.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <normApi.h>

namespace {

constexpr unsigned SOCKET_BYTES = 8u << 20;
constexpr unsigned BUFFER_BYTES = 64u << 20;
constexpr UINT16 SEGMENT_BYTES = 1400;
constexpr UINT16 BLOCK_SEGMENTS = 64;
constexpr UINT16 PARITY_SEGMENTS = 16;
constexpr double FIRST_RATE = 1e6;
constexpr double ROUND_TRIP_S = 0.001;
constexpr double BACKOFF_ROUND_TRIPS = 1;
constexpr NormNodeId SENDER = 1000;

int fail(const char *what) {
    std::fprintf(stderr, "norm: %s\n", what);
    return 1;
}

void tell(const char *event) {
    std::printf("{\"event\":\"%s\"}\n", event);
    std::fflush(stdout);
}

int send(NormInstanceHandle norm, NormSessionHandle session, const char *file, double rate,
         unsigned receivers, unsigned parity) {
    NormSetTxRate(session, rate > 0 ? rate : FIRST_RATE);
    NormSetCongestionControl(session, rate <= 0);
    NormSetGrttEstimate(session, ROUND_TRIP_S);
    NormSetGroupSize(session, receivers);
    NormSetBackoffFactor(session, BACKOFF_ROUND_TRIPS);
    for (NormNodeId node = 1; node <= receivers; ++node)
        NormAddAckingNode(session, node);
    if (!NormStartSender(session, 1, BUFFER_BYTES, SEGMENT_BYTES, BLOCK_SEGMENTS, PARITY_SEGMENTS))
        return fail("the sender does not start");
    NormSetAutoParity(session, static_cast<unsigned char>(parity));
    NormSetTxSocketBuffer(session, SOCKET_BYTES);
    const NormObjectHandle object = NormFileEnqueue(session, file);
    if (object == NORM_OBJECT_INVALID)
        return fail("the file is not taken");
    NormSetWatermark(session, object, true);
    NormEvent event;
    while (NormGetNextEvent(norm, &event)) {
        if (event.type != NORM_TX_WATERMARK_COMPLETED)
            continue;
        if (NormGetAckingStatus(session) == NORM_ACK_SUCCESS) {
            tell("confirmed");
            return 0;
        }
        // Somebody still lacks something: asked again.
        NormResetWatermark(session);
    }
    return fail("no more events");
}

int receive(NormInstanceHandle norm, NormSessionHandle session, const char *file) {
    if (!NormStartReceiver(session, BUFFER_BYTES))
        return fail("the receiver does not start");
    NormSetRxSocketBuffer(session, SOCKET_BYTES);
    NormPreallocateRemoteSender(session, BUFFER_BYTES, SEGMENT_BYTES, BLOCK_SEGMENTS,
                                PARITY_SEGMENTS);
    tell("waiting");
    NormEvent event;
    while (NormGetNextEvent(norm, &event)) {
        if (event.type == NORM_RX_OBJECT_ABORTED)
            return fail("the transfer was given up");
        if (event.type != NORM_RX_OBJECT_COMPLETED)
            continue;
        if (!NormFileRename(event.object, file))
            return fail("the copy is not renamed");
        tell("complete");
    }
    return fail("no more events");
}

} // namespace

int main(int count, char **words) {
    const bool sends = count == 9 && std::strcmp(words[1], "send") == 0;
    if (!sends && (count != 7 || std::strcmp(words[1], "recv") != 0))
        return fail(
            "send INTERFACE GROUP PORT FILE BITS_PER_S RECEIVERS PARITY, or recv ... FILE NODE");
    const NormInstanceHandle norm = NormCreateInstance();
    const NormNodeId node = sends ? SENDER : NormNodeId(std::atoi(words[6]));
    const NormSessionHandle session =
        NormCreateSession(norm, words[3], UINT16(std::atoi(words[4])), node);
    if (session == NORM_SESSION_INVALID)
        return fail("no session");
    NormSetMulticastInterface(session, words[2]);
    NormSetTTL(session, 1);
    if (sends)
        return send(norm, session, words[5], std::atof(words[6]), unsigned(std::atoi(words[7])),
                    unsigned(std::atoi(words[8])));
    char folder[512];
    std::snprintf(folder, sizeof folder, "%s.part/", words[5]);
    if (!NormSetCacheDirectory(norm, folder))
        return fail("there is no folder for the parts");
    return receive(norm, session, words[5]);
}
