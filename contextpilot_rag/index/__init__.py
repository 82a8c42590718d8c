"""The context index: the picture of what an engine has cached, and the orders that follow from it."""
