package control

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

func listKeys(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	keys, err := c.Cloud.Keys.ListKeys(ctx, c.home())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.KeyList{Keys: append([]schedule.Key{}, keys...)})
}

func addKey(c *call) error {
	var given api.NewKey
	if err := c.body(&given); err != nil {
		return err
	}
	c.action.about(c.home(), actions.Object{Kind: "key", Name: given.Name})
	if given.Name == sshkeys.Agent || given.Name == sshkeys.Auto {
		return croft.Errorf(croft.Invalid, "a key cannot be named %s, which stands for other keys", given.Name)
	}
	if err := schedule.CheckName(given.Name); err != nil {
		return err
	}
	line, err := sshkeys.Parse(given.Line)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	key := schedule.Key{Project: c.home(), Name: given.Name, Line: line, Added: time.Now().UTC()}
	err = c.Cloud.Keys.AddKey(ctx, key)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.NameTaken, "there is a key "+given.Name+": choose another name, or remove that")
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, key)
}

func removeKey(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	name := c.r.PathValue("name")
	err := schedule.CheckName(name) // it becomes part of a key of the store
	if err == nil {
		err = c.Cloud.Keys.RemoveKey(ctx, c.home(), name)
	}
	if k := croft.KindOf(err); k == croft.NotFound || k == croft.Invalid {
		return api.NewProblem(api.NotFound, "there is no key "+strconv.Quote(api.Clip(name)))
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
