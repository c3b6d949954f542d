// Package kdev is the binding to /dev/kerninst: it loads the module and turns
// the calls of guest/module/uapi/kerninst.h into methods.
//
// It holds the project's only build tags and its only use of unsafe. Nothing is
// decided here: addresses and bytes come from plans, and every refusal of the
// module is handed on with its errno, what was asked, and what to do about it.
//
// resolve.go and layout.go are plain data and run anywhere; device.go and
// module.go need Linux.
package kdev
