//! Messages between routers, and from a router to its link (LMS-HIER, `docs/wire.md`).
