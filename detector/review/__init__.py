"""`detector review`: a page on this machine where a person corrects boxes, and the file that keeps it."""
