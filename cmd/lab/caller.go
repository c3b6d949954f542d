package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// asCaller makes a lab that sudo started go on as the user who called sudo, if
// the cache that it is to use is that user's: files of root's in there would
// stop the user's next lab, and nothing that follows needs root. With a cache of
// root's own, as sudo has it on Debian (HOME=/root), it stays root.
func asCaller() error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || uid == 0 || os.Geteuid() != 0 {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil // who needs it will complain
	}
	owner, gid, err := owner(cache)
	if err != nil || owner != uid {
		return err
	}
	if n, err := strconv.Atoi(os.Getenv("SUDO_GID")); err == nil {
		gid = n
	}
	err = errors.Join(syscall.Setgroups(groups(uid, gid)), syscall.Setgid(gid), syscall.Setuid(uid))
	if err != nil {
		return fmt.Errorf("the cache %s belongs to user %d, who called sudo, and the lab cannot become that user: %w; run it without sudo", cache, uid, err)
	}
	progress("going on as user %d: the cache %s is that user's", uid, cache)
	return nil
}

// owner is to whom a folder belongs, or the nearest one above it that exists.
func owner(dir string) (uid, gid int, err error) {
	for ; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, 0, fmt.Errorf("%s: no owner known", dir)
		}
		return int(sys.Uid), int(sys.Gid), nil
	}
}

// groups are a user's, as far as this host knows them.
func groups(uid, gid int) []int {
	all := []int{gid}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return all
	}
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil && n != gid {
			all = append(all, n)
		}
	}
	return all
}
