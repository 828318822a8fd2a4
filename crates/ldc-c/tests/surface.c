// Each function of the header, with valid and invalid arguments. Exits with 1 and the line of the first failed check.
#include <arpa/inet.h>
#include <ldc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                   \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "surface.c:%d: %s (%s)\n", __LINE__, #condition, ldc_last_error());                   \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define IS(status, call) EXPECT((call) == LDC_STATUS_##status)

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

static void arguments(void) {
  ldc_shape shape = {.slots = 8, .slot_bytes = 64};
  ldc_sender *sender = NULL;
  ldc_receiver *receiver = NULL;
  IS(INVALID, ldc_open_pair(NULL, &sender, &receiver));
  IS(INVALID, ldc_open_pair(&shape, NULL, &receiver));
  IS(INVALID, ldc_open_pair(&shape, &sender, NULL));
  EXPECT(sender == NULL && receiver == NULL);
  ldc_shape none = {0}, classes = {.slots = 8, .slot_bytes = 64, .classes = 2};
  IS(INVALID, ldc_open_pair(&none, &sender, &receiver));
  IS(INVALID, ldc_open_pair(&classes, &sender, &receiver));
  EXPECT(strstr(ldc_last_error(), "classes") != NULL);
  // Descriptors that are none.
  IS(FAILED, ldc_open_tcp(-1, &shape, NULL, &sender));
  IS(FAILED, ldc_open_udp(1 << 20, &shape, NULL, &sender));
  IS(FAILED, ldc_open_shm(-5, &shape, &sender));
  IS(FAILED, ldc_receiver_attach(-1, 1 << 20, &receiver));
  // Too many classes: the weights, of which there are too few, are not read.
  uint32_t weight = 1;
  ldc_shape wild = {.slots = 8, .slot_bytes = 64, .classes = 1u << 30, .weights = &weight};
  IS(INVALID, ldc_open_tcp(0, &wild, NULL, &sender));
  // Handles that are null or misaligned.
  IS(INVALID, ldc_send(NULL, 1, bytes("x"), 1, NULL));
  IS(INVALID, ldc_send((ldc_sender *)(uintptr_t)1, 1, bytes("x"), 1, NULL));
  IS(INVALID, ldc_receiver_wait(NULL, 0));
  EXPECT(ldc_sender_fd(NULL, 0) == -1 && ldc_receiver_fd(NULL) == -1 && ldc_listener_fd(NULL) == -1);
  ldc_sender_free(NULL);
  ldc_receiver_free(NULL);
  ldc_listener_free(NULL);

  IS(OK, ldc_open_pair(&shape, &sender, &receiver));
  IS(INVALID, ldc_send(sender, 1, NULL, 1, NULL));
  IS(INVALID, ldc_send(sender, 1, bytes("x"), SIZE_MAX, NULL));
  IS(INVALID, ldc_send(sender, 1, bytes("x"), 1, (const ldc_attributes *)(uintptr_t)3));
  ldc_attributes other = {.class_index = 1};
  IS(INVALID, ldc_send(sender, 1, bytes("x"), 1, &other));
  IS(OK, ldc_send(sender, 1, NULL, 0, NULL));
  ldc_message message;
  IS(INVALID, ldc_receiver_receive(receiver, NULL, 0, NULL));
  IS(OK, ldc_receiver_receive(receiver, NULL, 0, &message));
  EXPECT(message.seq == 1 && message.len == 0);
  ldc_sender_free(sender);
  ldc_receiver_free(receiver);

  EXPECT(strcmp(ldc_status_text(LDC_STATUS_OK), "no error") == 0);
  EXPECT(strcmp(ldc_status_text(12345), "unknown status") == 0);
  EXPECT(strchr(ldc_version(), '.') != NULL);
  EXPECT(ldc_now_us() > 0);
}

static void changes_of_mind(void) {
  ldc_shape shape = {.slots = 8, .slot_bytes = 64};
  ldc_sender *sender;
  ldc_receiver *receiver;
  IS(OK, ldc_open_pair(&shape, &sender, &receiver));
  EXPECT(ldc_sender_fd(sender, 0) >= 0 && ldc_receiver_fd(receiver) >= 0);
  EXPECT(ldc_sender_fd(sender, 1) == -1);
  ldc_message message;
  uint8_t buffer[1024];
  IS(EMPTY, ldc_receiver_receive(receiver, buffer, sizeof buffer, &message));
  IS(TIMED_OUT, ldc_receiver_wait(receiver, 0));

  // A full ring, and a message that never fits.
  memset(buffer, 'm', sizeof buffer);
  IS(TOO_LONG, ldc_send(sender, 9, buffer, 8 * 64 + 1, NULL));
  IS(OK, ldc_send(sender, 1, buffer, 8 * 64, NULL));
  IS(FULL, ldc_send(sender, 2, bytes("x"), 1, NULL));
  IS(FULL, ldc_send_wait(sender, 2, bytes("x"), 1, NULL, 1000));
  IS(TIMED_OUT, ldc_wait_room(sender, 0, 1, 1000));
  ldc_changed changed = {0};
  IS(OK, ldc_cancel(sender, 1, &changed));
  EXPECT(changed.changed == 1 && changed.too_late == 0);
  IS(OK, ldc_cancel(sender, 77, NULL));
  IS(CANCELLED, ldc_modify(sender, 1, 0, bytes("x"), 1));
  IS(EMPTY, ldc_receiver_receive(receiver, buffer, sizeof buffer, &message));
  IS(OK, ldc_wait_room(sender, 0, 8, -1));

  // Held back, changed, released in parts. Attributes arrive.
  ldc_attributes urgent = {.deadline_us = ldc_now_us() + 60000000, .priority = 7};
  ldc_attributes late = {.deadline_us = 1};
  IS(OK, ldc_send(sender, 10, bytes("ten"), 3, &urgent));
  IS(OK, ldc_send(sender, 11, bytes("eleven"), 6, NULL));
  IS(OK, ldc_send(sender, 12, bytes("late"), 4, &late));
  IS(OK, ldc_send(sender, 13, bytes("thirteen"), 8, NULL));
  IS(OK, ldc_hold_back(sender, 11, &changed));
  EXPECT(changed.changed == 3);
  ldc_state state;
  IS(OK, ldc_sender_state(sender, 0, &state));
  EXPECT(state.slots == 8 && state.slot_bytes == 64 && state.free_slots == 4 && state.pending == 4);
  EXPECT(state.is_holding_back && state.is_attached && !state.is_closed && !state.has_ended);
  IS(HELD_BACK, ldc_finish(sender, 0, NULL));
  IS(OK, ldc_modify(sender, 11, 0, bytes("EL"), 2));
  IS(TOO_LONG, ldc_modify(sender, 11, 5, bytes("EL"), 2));
  IS(TOO_LONG, ldc_modify(sender, 11, SIZE_MAX, bytes("EL"), 2));
  IS(OK, ldc_replace(sender, 13, bytes("13"), 2));
  IS(TOO_LONG, ldc_replace(sender, 13, buffer, 65));
  IS(UNKNOWN, ldc_replace(sender, 99, bytes("x"), 1));
  IS(TOO_LONG, ldc_receiver_receive(receiver, buffer, 2, &message));
  EXPECT(message.len == 3);
  IS(OK, ldc_receiver_wait(receiver, 0));
  IS(OK, ldc_receiver_receive(receiver, buffer, sizeof buffer, &message));
  EXPECT(message.seq == 10 && message.priority == 7 && message.deadline_us == urgent.deadline_us);
  EXPECT(memcmp(buffer, "ten", 3) == 0);
  IS(EMPTY, ldc_receiver_claim(receiver, &message));
  IS(OK, ldc_release_until(sender, 13));
  IS(UNKNOWN, ldc_release_until(sender, 99));

  // Claimed, acknowledged, completed; stale identifiers are known as such.
  IS(OK, ldc_receiver_claim(receiver, &message));
  EXPECT(message.seq == 11 && message.len == 6);
  IS(TOO_LATE, ldc_modify(sender, 11, 0, bytes("x"), 1));
  IS(OK, ldc_receiver_read(receiver, message.id, 2, buffer, 4));
  EXPECT(memcmp(buffer, "even", 4) == 0);
  IS(TOO_LONG, ldc_receiver_read(receiver, message.id, SIZE_MAX, buffer, 4));
  bool abandoned = true;
  IS(OK, ldc_receiver_is_abandoned(receiver, message.id, &abandoned));
  EXPECT(!abandoned);
  IS(OK, ldc_abandon(sender, 11, &changed));
  EXPECT(changed.too_late == 1);
  IS(OK, ldc_receiver_is_abandoned(receiver, message.id, &abandoned));
  EXPECT(abandoned);
  uint64_t seq = 0;
  IS(EMPTY, ldc_poll_ack(sender, &seq));
  IS(OK, ldc_receiver_ack(receiver, message.id));
  IS(OK, ldc_poll_ack(sender, &seq));
  EXPECT(seq == 11);
  IS(OK, ldc_receiver_complete(receiver, message.id));
  IS(UNKNOWN, ldc_receiver_complete(receiver, message.id));
  IS(UNKNOWN, ldc_receiver_ack(receiver, message.id));
  IS(UNKNOWN, ldc_receiver_read(receiver, message.id, 0, buffer, 1));
  IS(UNKNOWN, ldc_receiver_is_abandoned(receiver, message.id, &abandoned));

  IS(OK, ldc_hold_back_all(sender, &changed));
  IS(OK, ldc_release(sender));
  IS(OK, ldc_receiver_receive(receiver, buffer, sizeof buffer, &message));
  EXPECT(message.seq == 13 && message.len == 2 && memcmp(buffer, "13", 2) == 0);
  ldc_counters counters;
  IS(OK, ldc_receiver_counters(receiver, &counters));
  EXPECT(counters.claimed == 3 && counters.cancelled == 1 && counters.expired == 1);
  IS(OK, ldc_notify(sender));
  IS(FAILED, ldc_pass(sender, 0));
  IS(OK, ldc_finish(sender, -1, NULL));
  IS(CLOSED, ldc_finish(sender, -1, NULL));
  IS(CLOSED, ldc_send(sender, 1, bytes("x"), 1, NULL));
  IS(CLOSED, ldc_receiver_receive(receiver, buffer, sizeof buffer, &message));
  IS(CLOSED, ldc_receiver_wait(receiver, -1));
  ldc_receiver_free(receiver);
  ldc_sender_free(sender);
}

static void datagrams(void) {
  int sockets[2] = {socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  EXPECT(bind(sockets[1], (struct sockaddr *)&address, len) == 0);
  EXPECT(getsockname(sockets[1], (struct sockaddr *)&address, &len) == 0);
  EXPECT(connect(sockets[0], (struct sockaddr *)&address, len) == 0);
  ldc_shape shape = {.slots = 8, .slot_bytes = 1500};
  ldc_udp_config config = {.rate_bps = 100000000};
  ldc_sender *sender;
  IS(OK, ldc_open_udp(sockets[0], &shape, &config, &sender));
  close(sockets[0]);
  IS(OK, ldc_send(sender, 1, bytes("datagram"), 8, NULL));
  ldc_stats stats;
  IS(OK, ldc_finish(sender, -1, &stats));
  EXPECT(stats.messages == 1 && stats.bytes == 8);
  ldc_sender_free(sender);
  char got[16];
  EXPECT(recv(sockets[1], got, sizeof got, 0) == 8 && memcmp(got, "datagram", 8) == 0);
  close(sockets[1]);
}

// A peer that never reads: the wait for the end has a limit, and what has not left can be cancelled.
static void a_wait_that_ends(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
  EXPECT(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  EXPECT(bind(listener, (struct sockaddr *)&address, len) == 0 && listen(listener, 1) == 0);
  EXPECT(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
  int out = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT(connect(out, (struct sockaddr *)&address, len) == 0);
  ldc_shape shape = {.slots = 64, .slot_bytes = 1 << 16};
  ldc_tcp_config config = {.unsent_max_bytes = 65536};
  ldc_sender *sender;
  IS(OK, ldc_open_tcp(out, &shape, &config, &sender));
  close(out);
  static uint8_t large[1 << 16];
  for (uint64_t seq = 0; seq < 64; seq++) {
    IS(OK, ldc_send(sender, seq, large, sizeof large, NULL));
  }
  IS(TIMED_OUT, ldc_finish(sender, 20000, NULL));
  IS(CLOSED, ldc_send(sender, 100, large, 1, NULL));
  ldc_changed changed = {0}, sum = {0};
  for (uint64_t seq = 0; seq < 64; seq++) {
    IS(OK, ldc_cancel(sender, seq, &changed));
    sum.changed += changed.changed;
  }
  EXPECT(sum.changed > 0);
  // The peer goes, and takes what it has not read with it.
  close(listener);
  IS(FAILED, ldc_finish(sender, -1, NULL));
  EXPECT(strlen(ldc_last_error()) > 0);
  ldc_sender_free(sender);
}

static void quic(const char *key_file) {
  ldc_listener *listener;
  IS(INVALID, ldc_listen("nonsense", key_file, NULL, &listener));
  IS(FAILED, ldc_listen("127.0.0.1:0", "/nonexistent", NULL, &listener));
  EXPECT(strstr(ldc_last_error(), "/nonexistent") != NULL);
  IS(INVALID, ldc_listen(NULL, key_file, NULL, &listener));
  IS(OK, ldc_listen("127.0.0.1:0", key_file, NULL, &listener));
  EXPECT(ldc_listener_fd(listener) >= 0);
  uint16_t port = 0;
  IS(OK, ldc_listener_port(listener, &port));
  char remote[32];
  snprintf(remote, sizeof remote, "127.0.0.1:%u", port);

  uint32_t weights[2] = {3, 1}, zero[2] = {1, 0};
  ldc_shape shape = {.slots = 64, .slot_bytes = 1500, .classes = 2, .weights = zero};
  ldc_quic_config config = {.acks = 1, .congestion = 9};
  ldc_sender *sender;
  IS(INVALID, ldc_open_quic(remote, NULL, key_file, &shape, NULL, &sender));
  shape.weights = weights;
  IS(INVALID, ldc_open_quic(remote, NULL, key_file, &shape, &config, &sender));
  config.congestion = 1;
  IS(INVALID, ldc_open_quic("\xff", NULL, key_file, &shape, &config, &sender));
  IS(OK, ldc_open_quic(remote, NULL, key_file, &shape, &config, &sender));
  ldc_attributes second = {.class_index = 1};
  IS(OK, ldc_send(sender, 5, bytes("over QUIC"), 9, &second));
  IS(OK, ldc_notify(sender));

  uint8_t buffer[64];
  ldc_event event;
  IS(TOO_LONG, ldc_listener_wait(listener, -1, NULL, 0, &event));
  IS(OK, ldc_listener_wait(listener, -1, buffer, sizeof buffer, &event));
  EXPECT(event.kind == LDC_EVENT_KIND_CONNECTED && memcmp(buffer, "127.0.0.1:", 10) == 0);
  IS(OK, ldc_listener_wait(listener, -1, buffer, sizeof buffer, &event));
  EXPECT(event.kind == LDC_EVENT_KIND_MESSAGE && event.len == 9 && memcmp(buffer, "over QUIC", 9) == 0);
  // The acknowledgement leaves with the next wait.
  uint64_t seq = 0;
  for (ldc_status status = LDC_STATUS_EMPTY; status == LDC_STATUS_EMPTY;) {
    IS(TIMED_OUT, ldc_listener_wait(listener, 1000, buffer, sizeof buffer, &event));
    status = ldc_poll_ack(sender, &seq);
  }
  EXPECT(seq == 5);
  IS(OK, ldc_listener_refuse(listener, "enough"));
  // A message that the listener will not acknowledge, so that the drain cannot end before it knows of the refusal.
  IS(OK, ldc_send(sender, 6, bytes("refused"), 7, NULL));
  IS(TIMED_OUT, ldc_listener_wait(listener, 1000, buffer, sizeof buffer, &event));
  ldc_stats stats = {.messages = 1};
  IS(FAILED, ldc_finish(sender, -1, &stats));
  EXPECT(strstr(ldc_last_error(), "enough") != NULL && stats.messages == 1);
  ldc_sender_free(sender);
  ldc_listener_free(listener);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  EXPECT(strcmp(ldc_last_error(), "no error") == 0);
  arguments();
  changes_of_mind();
  datagrams();
  a_wait_that_ends();
  quic(argv[1]);
  return 0;
}
