// Sends a stream in layers over TCP, then cancels one layer that has not left and replaces another.
//
//     cargo build --release -p ldc-c
//     cc -Icrates/ldc-c/include crates/ldc-c/examples/layers.c -Ltarget/release -lldc -o layers
//     LD_LIBRARY_PATH=target/release ./layers
#include <arpa/inet.h>
#include <ldc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(const char *what, ldc_status status) {
  if (status != LDC_STATUS_OK) {
    fprintf(stderr, "%s: %s\n", what, ldc_last_error());
    exit(1);
  }
}

// Returns a connected pair of TCP sockets: what a program would have from `connect` and `accept`.
static void tcp_pair(int sockets[2]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &len) != 0 ||
      connect(sockets[0], (struct sockaddr *)&address, len) != 0) {
    perror("loopback");
    exit(1);
  }
  sockets[1] = accept(listener, NULL, NULL);
  close(listener);
}

int main(void) {
  int sockets[2];
  tcp_pair(sockets);

  // Two classes: the base layer overtakes the others.
  ldc_shape shape = {.slots = 64, .slot_bytes = 1500, .classes = 2};
  ldc_sender *sender;
  check("ldc_open_tcp", ldc_open_tcp(sockets[0], &shape, NULL, &sender));

  ldc_attributes enhancement = {.class_index = 1};
  check("ldc_send", ldc_send(sender, 0, (const uint8_t *)"base ", 5, NULL));
  check("ldc_send", ldc_send(sender, 1, (const uint8_t *)"layer 1 ", 8, &enhancement));
  check("ldc_send", ldc_send(sender, 2, (const uint8_t *)"layer 2 ", 8, &enhancement));
  check("ldc_send", ldc_send(sender, 3, (const uint8_t *)"layer 3 ", 8, &enhancement));

  // The link is too slow: layer 3 is given up, and layer 2 becomes smaller, unless they have left.
  ldc_changed changed;
  check("ldc_cancel", ldc_cancel(sender, 3, &changed));
  printf("layer 3: cancelled %u, too late %u\n", changed.changed, changed.too_late);
  ldc_status replaced = ldc_replace(sender, 2, (const uint8_t *)"small ", 6);
  printf("layer 2: %s\n", replaced == LDC_STATUS_OK ? "replaced" : ldc_last_error());
  check("ldc_notify", ldc_notify(sender));

  // The library has a copy of the descriptor, so the stream ends when both are closed.
  close(sockets[0]);
  ldc_stats stats;
  check("ldc_finish", ldc_finish(sender, -1, &stats));
  ldc_sender_free(sender);
  printf("sent %llu messages, %llu cancelled\n", (unsigned long long)stats.messages,
         (unsigned long long)stats.cancelled);

  char got[64];
  size_t len = 0;
  ssize_t count;
  while ((count = read(sockets[1], got + len, sizeof got - 1 - len)) > 0) {
    len += (size_t)count;
  }
  got[len] = 0;
  close(sockets[1]);
  printf("received: %s\n", got);
  return 0;
}
