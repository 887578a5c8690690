# Included by projects for the vendor's platform; nothing of it is used.
