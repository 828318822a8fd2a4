//! LMS-HIER: the neighbour table, the election of repliers, and the updates between routers
//! (LMS §6.7.1).
