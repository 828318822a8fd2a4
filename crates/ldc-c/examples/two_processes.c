// A ring between two processes. The one that sends changes a message in place; the other one receives, and its process could
// drain the messages into any device.
//
//     cargo build --release -p ldc-c
//     cc -Icrates/ldc-c/include crates/ldc-c/examples/two_processes.c -Ltarget/release -lldc -o two_processes
//     LD_LIBRARY_PATH=target/release ./two_processes
#include <ldc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(const char *what, ldc_status status) {
  if (status != LDC_STATUS_OK) {
    fprintf(stderr, "%s: %s\n", what, ldc_last_error());
    exit(1);
  }
}

static int receive(int socket) {
  ldc_receiver *receiver;
  check("ldc_receiver_attach", ldc_receiver_attach(socket, 1 << 20, &receiver));
  close(socket);
  uint8_t buffer[1500];
  for (;;) {
    ldc_message message;
    ldc_status status = ldc_receiver_receive(receiver, buffer, sizeof buffer, &message);
    if (status == LDC_STATUS_OK) {
      printf("%llu: %.*s\n", (unsigned long long)message.seq, (int)message.len, (const char *)buffer);
    } else if (status == LDC_STATUS_EMPTY) {
      status = ldc_receiver_wait(receiver, -1);
      if (status != LDC_STATUS_OK && status != LDC_STATUS_CLOSED) {
        check("ldc_receiver_wait", status);
      }
    } else if (status == LDC_STATUS_CLOSED) {
      ldc_receiver_free(receiver);
      return 0;
    } else {
      check("ldc_receiver_receive", status);
    }
  }
}

int main(void) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
    perror("socketpair");
    return 1;
  }
  // Before any handle exists: handles belong to one process.
  pid_t child = fork();
  if (child == 0) {
    close(sockets[0]);
    return receive(sockets[1]);
  }
  close(sockets[1]);

  ldc_shape shape = {.slots = 16, .slot_bytes = 1500};
  ldc_sender *sender;
  check("ldc_open_shm", ldc_open_shm(sockets[0], &shape, &sender));
  close(sockets[0]);
  ldc_attributes urgent = {.deadline_us = ldc_now_us() + 60 * 1000 * 1000, .priority = 7};
  check("ldc_send", ldc_send(sender, 1, (const uint8_t *)"first", 5, &urgent));
  check("ldc_notify", ldc_notify(sender));
  check("ldc_send_wait", ldc_send_wait(sender, 2, (const uint8_t *)"second", 6, NULL, -1));
  // "too late" if the other process has claimed the message already.
  ldc_status status = ldc_modify(sender, 2, 0, (const uint8_t *)"SECOND", 6);
  fprintf(stderr, "modify: %s\n", ldc_status_text(status));
  check("ldc_finish", ldc_finish(sender, -1, NULL));
  ldc_sender_free(sender);

  int result = 0;
  waitpid(child, &result, 0);
  return WIFEXITED(result) ? WEXITSTATUS(result) : 1;
}
