// SPDX-License-Identifier: Apache-2.0

package join

import "strings"

// outermost are functions that nothing calls: a walk that ends in one of them is
// complete, whatever lies beyond. From glibc and musl.
var outermost = map[string]bool{
	"_start": true, "__libc_start_main": true, "__libc_start_call_main": true, "__libc_start_main_impl": true,
	"_start_c": true, "libc_start_main_stage2": true,
	"start_thread": true, "clone": true, "clone3": true, "__clone": true, "__clone3": true,
}

// plumbing begins the names of what CPython runs between a call in the program
// and the function that is called, and on the way back: it is the same below
// every function and belongs to the line of the call. From Objects/call.c,
// Objects/descrobject.c, Objects/methodobject.c, Objects/genobject.c and
// Python/ceval.c of 3.8 to 3.13.
var plumbing = []string{
	"_PyEval_", "PyEval_", "_PyEvalFrame", "_PyFrame_", "_PyThreadState_PushFrame", "_PyThreadState_PopFrame",
	"PyObject_Call", "_PyObject_Call", "PyObject_Vectorcall", "_PyObject_Vectorcall", "_PyObject_FastCall",
	"_PyObject_MakeTpCall", "PyVectorcall_", "_PyVectorcall_", "_PyFunction_", "function_code_fastcall",
	"PyCFunction_Call", "_PyCFunction_", "cfunction_call", "cfunction_vectorcall", "method_vectorcall",
	"_PyMethodDef_", "_PyMethodDescr_", "call_function", "do_call_core", "object_vacall", "vectorcall_method",
	"vectorcall_unbound", "vectorcall_maybe", "method_call", "wrapper_call", "wrapperdescr_call",
	"gen_send_ex", "gen_iternext", "PyGen_am_send", "gen_send", "PyIter_Send", "py_trampoline_evaluator",
	"_Py_CheckFunctionResult", "_Py_CheckRecursiveCall", "_Py_EnterRecursive", "_Py_LeaveRecursive",
	"_Py_HandlePending", "eval_frame_handle_pending", "trace_call_function", "call_trampoline",
}

// isPlumbing tells whether a function of the interpreter is one of those.
func isPlumbing(name string) bool {
	for _, p := range plumbing {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// clearing names what takes down a Python frame that has ended. It may run
// destructors, which are Python functions again.
func clearing(name string) bool {
	return strings.HasPrefix(name, "_PyEval") && strings.HasSuffix(strings.TrimSuffix(name, "@plt"), "ClearAndPop")
}

// isTrampoline tells the code that CPython makes for a Python function, so that
// perf sees it (-X perf, from 3.12 on): the function is on the stack already.
func isTrampoline(name string) bool { return strings.HasPrefix(name, "py::") }
