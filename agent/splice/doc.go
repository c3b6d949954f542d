// Package splice makes a running kernel take plans, and give them back.
//
// It owns the areas that patches lie in and the journal of what is live. The
// order is fixed: patch first, point last, so that the kernel never jumps to
// anything unfinished; and in reverse when splices are undone: point first,
// slot last, when nobody can be inside the patch any more.
package splice
