package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commit is that of the sources that guests are built from, with a mark if files differ from
// it; "" where nobody knows: there is no git, or the sources are no clone.
func commit(ctx context.Context) string {
	root, err := repository()
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return described(ctx, root)
}

func described(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0") // it only looks: others may be at work there
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
