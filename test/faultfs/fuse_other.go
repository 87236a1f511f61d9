//go:build !linux

package main

import (
	"errors"

	"github.com/millrace/millrace/test/faultfs/disk"
)

type mounted struct {
	d  *disk.Disk
	at string
}

func (m *mounted) up() error { return errors.New("there is FUSE without a helper on Linux only") }

func (m *mounted) down() error { return nil }
