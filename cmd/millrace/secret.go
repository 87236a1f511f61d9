package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/server"
)

// maxSecret bounds the text of a token in a file, in bytes.
const maxSecret = 4 << 10

// secretFlags are two ways to give a secret: as the value of a flag, which other users see in the list of processes, and by a file.
type secretFlags struct {
	name  string // of the first flag; the second one has -file after it
	value string
	file  string
}

// add adds both flags.
func (s *secretFlags) add(f *pflag.FlagSet, name, usage string) {
	s.name = name
	f.StringVar(&s.value, name, "", usage)
	f.StringVar(&s.file, name+"-file", "", "file with that "+name+", which keeps it out of the list of processes")
}

// given reports whether one of the flags was set.
func (s *secretFlags) given() bool { return s.value != "" || s.file != "" }

// read returns the secret; empty: none was given.
func (s *secretFlags) read() (string, error) {
	switch {
	case s.value != "" && s.file != "":
		return "", usageError{fmt.Errorf("--%s and --%s-file are mutually exclusive", s.name, s.name)}
	case s.value != "":
		secret, err := plainSecret(s.value)
		if err != nil {
			return "", usageError{fmt.Errorf("--%s: %w", s.name, err)}
		}
		return secret, nil
	case s.file == "":
		return "", nil
	}
	secret, err := readSecret(s.file)
	if err != nil {
		return "", usageError{fmt.Errorf("--%s-file: %w", s.name, err)}
	}
	return secret, nil
}

// readSecret reads a file that holds one token and nothing else but white space around it.
func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was read
	return secretOf(f)
}

func secretOf(f *os.File) (string, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSecret {
		return "", fmt.Errorf("%s: must be at most %d bytes", f.Name(), maxSecret)
	}
	secret, err := plainSecret(string(b))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Name(), err)
	}
	return secret, nil
}

// plainSecret takes off the white space around a secret and refuses one that no header can carry. The error does not show it.
func plainSecret(s string) (string, error) {
	secret, err := server.CleanSecret(s)
	if err == nil && secret == "" {
		return "", errNoSecret
	}
	return secret, err
}

// variableSecret reads a secret of the environment; empty: the variable is not set.
func variableSecret(name string) (string, error) {
	value, set := os.LookupEnv(name)
	if !set {
		return "", nil
	}
	secret, err := plainSecret(value)
	if err != nil {
		return "", usageError{fmt.Errorf("environment variable %s: %w", name, err)}
	}
	return secret, nil
}

// errNoSecret is the error for an empty file.
var errNoSecret = errors.New("it holds no token")

// devToken returns the token of a development server, which a file keeps over restarts; an empty name: none does. A new file is the
// owner's alone, and one that other users may read is made so; warn is told of that. A link is not followed.
func devToken(file string, warn func(string)) (token string, err error) {
	if file == "" {
		return server.NewToken(), nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(file, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.ELOOP) {
			return "", usageError{fmt.Errorf("--token-file: %s is a symbolic link, which is not followed", file)}
		}
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", usageError{fmt.Errorf("--token-file: %s must be a regular file", file)}
	case info.Mode().Perm()&0o077 != 0:
		if err := f.Chmod(0o600); err != nil {
			return "", fmt.Errorf("--token-file: other users may read it: %w", err)
		}
		warn(fmt.Sprintf("token file %s had mode %04o and has 0600 now: other users may know the token", file, info.Mode().Perm()))
	}
	if token, err = secretOf(f); !errors.Is(err, errNoSecret) {
		return token, err
	}
	token = server.NewToken()
	_, err = f.WriteAt([]byte(token+"\n"), 0)
	return token, err
}
