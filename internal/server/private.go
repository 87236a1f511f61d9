package server

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/env"
)

// PrivateFiles makes all files that this process creates from now on readable by its user only. It
// is for commands that write data or secrets.
func PrivateFiles() { env.PrivateFiles() }

// CheckTrusted refuses a file of settings that other users may change. The error names the file and
// what to do. Any other problem is left to the reader of the file.
func CheckTrusted(file string) error {
	_, err := env.CheckTrusted(file)
	if writable, ok := errors.AsType[*env.WritableError](err); ok {
		return writable
	}
	return nil // what else is wrong with a file is told by its reader
}

// keepPrivate removes other users' permissions from the directories in which the server stores
// data. It runs after the data directory was locked and before anything in it is opened.
func (o Options) keepPrivate() error {
	for _, dir := range []struct{ option, path string }{{"data", o.Dir}, {"log-archive-dir", o.ArchiveDir}} {
		if dir.path == "" {
			continue
		}
		changed, err := env.KeepPrivate(dir.path)
		if err != nil {
			return fmt.Errorf("%s: %w", dir.option, err)
		}
		if changed > 0 {
			o.Logger.Warn("other users could read a directory of this server; their permissions were removed", "option", dir.option, "dir", dir.path, "files", changed)
		}
	}
	return nil
}

// checkTrusted refuses files that the server's safety depends on if other users may change them. A
// private key that all users may read is only logged: secrets are often mounted into containers
// that way, where there is one user.
func (o Options) checkTrusted() error {
	// Everything that decides who may call, or who this server is.
	files := []struct {
		option, path string
		private      bool // only the server may read it
	}{
		{"tokens", o.TokensFile, false},
		{"tls-cert", o.TLSCert, false},
		{"tls-key", o.TLSKey, true},
		{"peer-ca", o.Cluster.CA, false},
		{"peer-cert", o.Cluster.Cert, false},
		{"peer-key", o.Cluster.Key, true},
		{"embedders", o.EmbeddersFile, false},
	}
	var refused []error
	for _, f := range files {
		if f.path == "" {
			continue
		}
		if err := CheckTrusted(f.path); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", f.option, err))
			continue
		}
		if readable, err := env.CheckTrusted(f.path); err == nil && readable && f.private {
			o.Logger.Warn("every user of this machine may read a private key; run chmod go-rwx on it", "option", f.option, "file", f.path)
		}
	}
	return errors.Join(refused...)
}
