// Package e2e tests the commands as a user has them: bin/lab with real QEMU,
// real kernels and the user's own cache. It has no code outside tests.
package e2e
