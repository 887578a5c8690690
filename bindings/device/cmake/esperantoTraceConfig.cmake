# Found by projects for the vendor's platform; kernels have et/trace.h and et/print.h.
