package main

import (
	roles "github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Authorization answers privilege queries from the same permissions that calls are checked against.
// The library grants every privilege.
type Authorization struct {
	*simulator.AuthorizationManager

	permissions *Permissions
	sessions    *Sessions
}

// NewAuthorization replaces the AuthorizationManager in the registry.
func NewAuthorization(
	ctx *simulator.Context, manager types.ManagedObjectReference, permissions *Permissions,
	sessions *Sessions,
) {
	library := ctx.Map.Get(manager).(*simulator.AuthorizationManager)
	ctx.Map.Put(&Authorization{library, permissions, sessions})
}

// HasPrivilegeOnEntities checks the account of a session.
func (a *Authorization) HasPrivilegeOnEntities(req *types.HasPrivilegeOnEntities) soap.HasFault {
	privileges := a.availability(a.userOf(req.SessionId), req.Entity, req.PrivId)
	return &methods.HasPrivilegeOnEntitiesBody{
		Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: privileges},
	}
}

// HasUserPrivilegeOnEntities checks an account by its name.
func (a *Authorization) HasUserPrivilegeOnEntities(
	req *types.HasUserPrivilegeOnEntities,
) soap.HasFault {
	privileges := a.availability(req.UserName, req.Entities, req.PrivId)
	return &methods.HasUserPrivilegeOnEntitiesBody{
		Res: &types.HasUserPrivilegeOnEntitiesResponse{Returnval: privileges},
	}
}

// HasPrivilegeOnEntity checks the account of a session on one entity.
func (a *Authorization) HasPrivilegeOnEntity(req *types.HasPrivilegeOnEntity) soap.HasFault {
	user, granted := a.userOf(req.SessionId), []bool{}
	for _, id := range req.PrivId {
		granted = append(granted, a.permissions.Has(user, req.Entity, id))
	}
	return &methods.HasPrivilegeOnEntityBody{Res: &types.HasPrivilegeOnEntityResponse{
		Returnval: granted,
	}}
}

// FetchUserPrivilegeOnEntities lists the privileges of an account, out of those that the library
// defines.
func (a *Authorization) FetchUserPrivilegeOnEntities(
	req *types.FetchUserPrivilegeOnEntities,
) soap.HasFault {
	res := &types.FetchUserPrivilegeOnEntitiesResponse{}
	for _, entity := range req.Entities {
		result := types.UserPrivilegeResult{Entity: entity}
		for _, id := range adminPrivileges(a.permissions.ctx) {
			if a.permissions.Has(req.UserName, entity, id) {
				result.Privileges = append(result.Privileges, id)
			}
		}
		res.Returnval = append(res.Returnval, result)
	}
	return &methods.FetchUserPrivilegeOnEntitiesBody{Res: res}
}

// adminPrivileges returns the privileges of the Admin role, which are all that exist.
func adminPrivileges(ctx *simulator.Context) []string {
	for _, object := range ctx.Map.AllReference("AuthorizationManager") {
		if manager, ok := object.(*Authorization); ok {
			if role := roles.AuthorizationRoleList(manager.RoleList).ByName("Admin"); role != nil {
				return role.Privilege
			}
		}
	}
	return nil
}

func (a *Authorization) availability(
	user string, entities []types.ManagedObjectReference, ids []string,
) []types.EntityPrivilege {
	var list []types.EntityPrivilege
	for _, entity := range entities {
		privilege := types.EntityPrivilege{Entity: entity}
		for _, id := range ids {
			privilege.PrivAvailability = append(
				privilege.PrivAvailability,
				types.PrivilegeAvailability{
					PrivId: id, IsGranted: a.permissions.Has(user, entity, id),
				},
			)
		}
		list = append(list, privilege)
	}
	return list
}

// userOf returns the account of a session, or "" if there is no such session.
func (a *Authorization) userOf(key string) string {
	for _, live := range a.sessions.Live() {
		if live.Key == key {
			return live.UserName
		}
	}
	return ""
}
