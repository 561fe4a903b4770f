package main

import (
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// SharedState is the state that the collectors of all sessions share. The library creates those
// collectors, so the state is kept in the collector of the registry.
type SharedState struct {
	permissions *Permissions
	rules       *Rules
	pageObjects int // objects in one answer of RetrievePropertiesEx; 0 means no limit

	mu      sync.Mutex
	results map[string]pendingResult
}

// pendingResult has the objects of a result that a client has not read yet.
type pendingResult struct {
	session string
	objects []types.ObjectContent
	size    int // objects in a page
}

func sharedState(ctx *simulator.Context) *SharedState {
	ref := types.ManagedObjectReference{Type: "PropertyCollector", Value: defaultCollector}
	return ctx.Map.Get(ref).(*Collector).shared
}

// RetrievePropertiesEx rejects unknown properties, which the library only reports as missing, and
// returns pages. The size of a page is RetrieveOptions.maxObjects or the limit of the server,
// whichever is smaller.
func (c *Collector) RetrievePropertiesEx(
	ctx *simulator.Context, req *types.RetrievePropertiesEx,
) soap.HasFault {
	all := *req
	all.Options.MaxObjects = 0
	body := c.PropertyCollector.RetrievePropertiesEx(ctx, &all).(*methods.RetrievePropertiesExBody)
	if body.Fault_ != nil || body.Res.Returnval == nil {
		return body
	}
	result := body.Res.Returnval
	if fault := unknownProperty(result.Objects); fault != nil {
		return &methods.RetrievePropertiesExBody{Fault_: simulator.Fault("", fault)}
	}
	shared := sharedState(ctx)
	objects := shared.permissions.Visible(ctx, result.Objects, req.SpecSet...)
	size := int(req.Options.MaxObjects)
	if shared.pageObjects > 0 && (size <= 0 || size > shared.pageObjects) {
		size = shared.pageObjects
	}
	*result = shared.page(pendingResult{sessionOf(ctx), objects, size})
	if result.Token != "" {
		shared.delayPage(ctx, "RetrievePropertiesEx")
	}
	if len(result.Objects) == 0 {
		body.Res.Returnval = nil // vCenter returns no result if nothing is selected
	}
	return body
}

// ContinueRetrievePropertiesEx returns the next page. A token is valid for one call in its session.
func (c *Collector) ContinueRetrievePropertiesEx(
	ctx *simulator.Context, req *types.ContinueRetrievePropertiesEx,
) soap.HasFault {
	shared := sharedState(ctx)
	rest, ok := shared.takeResult(ctx, req.Token)
	if !ok {
		fault := simulator.Fault("", &types.InvalidProperty{Name: "token"})
		return &methods.ContinueRetrievePropertiesExBody{Fault_: fault}
	}
	shared.delayPage(ctx, "ContinueRetrievePropertiesEx")
	return &methods.ContinueRetrievePropertiesExBody{
		Res: &types.ContinueRetrievePropertiesExResponse{Returnval: shared.page(rest)},
	}
}

// CancelRetrievePropertiesEx discards the remaining pages.
func (c *Collector) CancelRetrievePropertiesEx(
	ctx *simulator.Context, req *types.CancelRetrievePropertiesEx,
) soap.HasFault {
	if _, ok := sharedState(ctx).takeResult(ctx, req.Token); !ok {
		fault := simulator.Fault("", &types.InvalidProperty{Name: "token"})
		return &methods.CancelRetrievePropertiesExBody{Fault_: fault}
	}
	return &methods.CancelRetrievePropertiesExBody{Res: &types.CancelRetrievePropertiesExResponse{}}
}

// RetrieveProperties is the older method without pages. It rejects unknown properties too.
func (c *Collector) RetrieveProperties(
	ctx *simulator.Context, req *types.RetrieveProperties,
) soap.HasFault {
	body := c.PropertyCollector.RetrieveProperties(ctx, req).(*methods.RetrievePropertiesBody)
	if body.Fault_ != nil {
		return body
	}
	if fault := unknownProperty(body.Res.Returnval); fault != nil {
		return &methods.RetrievePropertiesBody{Fault_: simulator.Fault("", fault)}
	}
	body.Res.Returnval = sharedState(ctx).permissions.Visible(
		ctx, body.Res.Returnval, req.SpecSet...,
	)
	return body
}

// delayPage applies the rules for pages, except to calls of the simulator itself.
func (s *SharedState) delayPage(ctx *simulator.Context, method string) {
	if !isInternal(ctx) {
		s.rules.Take("page", method, "").Wait(nil)
	}
}

// page returns the first page of a result and keeps the remaining objects under a token.
func (s *SharedState) page(b pendingResult) types.RetrieveResult {
	if b.size <= 0 || len(b.objects) <= b.size {
		return types.RetrieveResult{Objects: b.objects}
	}
	result := types.RetrieveResult{Objects: b.objects[:b.size], Token: uuid.NewString()}
	b.objects = b.objects[b.size:]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results == nil {
		s.results = map[string]pendingResult{}
	}
	s.results[result.Token] = b
	return result
}

func (s *SharedState) takeResult(ctx *simulator.Context, token string) (pendingResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, ok := s.results[token]
	if !ok || result.session != sessionOf(ctx) {
		return pendingResult{}, false
	}
	delete(s.results, token)
	return result, true
}

func sessionOf(ctx *simulator.Context) string {
	if ctx.Session == nil {
		return ""
	}
	return ctx.Session.Key
}
