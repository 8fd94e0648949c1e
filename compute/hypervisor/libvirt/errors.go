package libvirt

import (
	"errors"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"

	"croft"
)

// task describes an attempt in the infinitive, with its object.
type task struct {
	verb, object string
	instance     croft.InstanceID // empty: the task concerns no instance
}

// about returns the task for one instance.
func about(verb string, id croft.InstanceID) task { return task{verb, "instance " + string(id), id} }

func (t task) String() string { return strings.TrimSpace(t.verb + " " + t.object) }

// is reports whether err is a libvirt error with one of these codes.
func is(err error, codes ...libvirt.ErrorNumber) bool {
	e, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}

// lostConnection reports whether err means that the connection is gone; it may precede the close callback.
func lostConnection(err error) bool {
	e, ok := errors.AsType[libvirt.Error](err)
	return ok && e.Domain == libvirt.FROM_RPC && !is(err, libvirt.ERR_OPERATION_DENIED, libvirt.ERR_AUTH_FAILED,
		libvirt.ERR_NO_SUPPORT)
}

// explain maps a libvirt error to a kind by its code, and keeps its message.
func explain(what task, err error) error {
	if croft.KindOf(err) != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	e, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	if lostConnection(err) {
		return croft.Errorf(croft.Unavailable, "%s: the connection to libvirt is lost: %w", what, words(err))
	}
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN, libvirt.ERR_NO_NETWORK:
		return croft.Errorf(croft.NotFound, "%s: %w", what, words(err))
	case libvirt.ERR_DOM_EXIST, libvirt.ERR_NETWORK_EXIST:
		return croft.Errorf(croft.Conflict, "%s: %w", what, words(err))
	case libvirt.ERR_XML_ERROR, libvirt.ERR_XML_DETAIL, libvirt.ERR_XML_INVALID_SCHEMA,
		libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_INVALID_ARG, libvirt.ERR_INVALID_MAC:
		return croft.Errorf(croft.Invalid, "%s: %w", what, words(err))
	case libvirt.ERR_OPERATION_TIMEOUT, libvirt.ERR_OPERATION_ABORTED, libvirt.ERR_NO_CONNECT,
		libvirt.ERR_OPERATION_DENIED, libvirt.ERR_AUTH_FAILED, libvirt.ERR_AUTH_UNAVAILABLE:
		return croft.Errorf(croft.Unavailable, "%s: %w", what, words(err))
	}
	return fmt.Errorf("%s: %w", what, words(err))
}

// words is err with libvirt's message only, without the error numbers.
func words(err error) error {
	if e, ok := errors.AsType[libvirt.Error](err); ok {
		return &wordsError{e}
	}
	return err
}

type wordsError struct{ err libvirt.Error }

func (e *wordsError) Error() string { return e.err.Message }
func (e *wordsError) Unwrap() error { return e.err }
