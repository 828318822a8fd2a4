//! The seam between LMS and what carries its option.
