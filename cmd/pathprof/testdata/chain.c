/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Python module of C functions that call a Python function each, through two
 * C functions more, and compute on both sides of that call:
 *
 *	outer → ext_a → ext_b → its argument
 *	middle → ext_c → ext_d → its argument
 *	inner → ext_e → ext_f
 *
 * With -DEMBED it is a program that runs its first argument as a Python program,
 * through run_a and run_b.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory") /* no tail call */

static volatile unsigned sink;

static NOINLINE void spin(void)
{
	for (unsigned i = 0; i < 3000; i++)
		sink = sink * 31 + i;
}

#define LAST(name)                                     \
	static NOINLINE PyObject *name(PyObject *call) \
	{                                              \
		PyObject *r;                           \
		spin();                                \
		if (call == Py_None)                   \
			r = PyLong_FromLong(sink);     \
		else                                   \
			r = PyObject_CallFunction(call, NULL); \
		spin();                                \
		KEEP;                                  \
		return r;                              \
	}

#define STEP(name, next)                               \
	static NOINLINE PyObject *name(PyObject *call) \
	{                                              \
		PyObject *r = next(call);              \
		KEEP;                                  \
		return r;                              \
	}

#define METHOD(name, next)                                              \
	static NOINLINE PyObject *name(PyObject *self, PyObject *call)  \
	{                                                               \
		PyObject *r = next(call);                               \
		KEEP;                                                   \
		return r;                                               \
	}

LAST(ext_b)
STEP(ext_a, ext_b)
METHOD(outer, ext_a)
LAST(ext_d)
STEP(ext_c, ext_d)
METHOD(middle, ext_c)
LAST(ext_f)
STEP(ext_e, ext_f)
METHOD(inner, ext_e)

static PyMethodDef methods[] = {
	{"outer", outer, METH_O, ""}, {"middle", middle, METH_O, ""}, {"inner", inner, METH_O, ""}, {0},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "chain", "", -1, methods};

PyMODINIT_FUNC PyInit_chain(void)
{
	return PyModule_Create(&module);
}

#ifdef EMBED
static NOINLINE int run_b(const char *program)
{
	int r = PyRun_SimpleString(program);
	KEEP;
	return r;
}

static NOINLINE int run_a(const char *program)
{
	int r = run_b(program);
	KEEP;
	return r;
}

int main(int argc, char **argv)
{
	int r;

	PyImport_AppendInittab("chain", PyInit_chain);
	Py_Initialize();
	r = run_a(argv[1]);
	KEEP;
	return r;
}
#endif
