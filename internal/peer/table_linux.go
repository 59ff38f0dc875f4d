package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fromTables is the lookup in the kernel's lists of all TCP sockets. It reads as many lines as there are sockets.
func fromTables(folder string, of, with netip.AddrPort) (entry, error) {
	found, seen := entry{}, false
	var errs []error
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) || name == "tcp" { // a kernel without IPv6 has no tcp6
				errs = append(errs, err)
			}
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Scan() // the names of the columns
		for lines.Scan() {
			local, remote, e, err := line(lines.Text())
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
				break
			}
			if local == of && remote == with && !e.listens {
				_ = f.Close()
				return e, nil
			}
			if e.listens && local.Port() == of.Port() && (local.Addr() == of.Addr() || local.Addr().IsUnspecified()) {
				found, seen = e, true
			}
		}
		errs = append(errs, lines.Err())
		_ = f.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return entry{}, err
	}
	if !seen {
		return entry{}, errNone
	}
	return found, nil
}

// line reads "sl local remote state queues timer retransmits uid timeout inode …".
func line(text string) (local, remote netip.AddrPort, e entry, err error) {
	f := strings.Fields(text)
	if len(f) < 10 {
		return local, remote, e, fmt.Errorf("expected at least 10 columns, got %q", text)
	}
	local, lerr := address(f[1])
	remote, rerr := address(f[2])
	state, serr := strconv.ParseUint(f[3], 16, 8)
	uid, uerr := strconv.ParseUint(f[7], 10, 32)
	inode, ierr := strconv.ParseUint(f[9], 10, 32)
	return local, remote, entry{listens: state == listening, uid: int(uid), inode: uint32(inode)},
		errors.Join(lerr, rerr, serr, uerr, ierr)
}

// address reads an address of four-byte words in the machine's order, and a port: 0100007F:1F90.
func address(text string) (netip.AddrPort, error) {
	words, port, ok := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || len(words) != 8 && len(words) != 32 {
		return netip.AddrPort{}, fmt.Errorf("expected an address such as 0100007F:1F90, got %q", text)
	}
	raw := make([]byte, len(words)/2)
	for i := 0; i < len(raw); i += 4 {
		word, err := strconv.ParseUint(words[2*i:2*i+8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("expected an address such as 0100007F:1F90, got %q", text)
		}
		binary.NativeEndian.PutUint32(raw[i:], uint32(word))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
}
