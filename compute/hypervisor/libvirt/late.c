//go:build libvirt_dlopen

/* The linker sends the binding's calls of virSetErrorFuncWrapper to __wrap_..., and
 * ours of __real_... to the binding. */

#include <stddef.h>

void __real_virSetErrorFuncWrapper(void *userData, void *handler);

static void *quiet;

void __wrap_virSetErrorFuncWrapper(void *userData, void *handler)
{
    (void)userData; /* the binding passes none */
    quiet = handler;
}

void croftQuietLibvirt(void)
{
    __real_virSetErrorFuncWrapper(NULL, quiet);
}
