import Bucketing
import JSON
import Storage

extension AuditNote {
    /// What to record of an admin's change of a profile; `nil` for the changes that app servers make.
    init?(_ change: ProfileChange, from former: ProfileRecord?, to profile: ProfileRecord?) {
        switch change.operation {
        case .override(let experimentID, _):
            self.init(
                .overrideSet, of: experimentID.string, userID: change.userID, before: Self.describe(former?[experimentID]),
                after: Self.describe(profile?[experimentID]))
        case .remove(let experimentID):
            self.init(
                .assignmentRemove, of: experimentID.string, userID: change.userID,
                before: Self.describe(former?[experimentID]))
        case .erase:
            self.init(.profileErase, of: "")
        case .replace, .merge, .assign:
            return nil
        }
    }

    private static func describe(_ assignment: Assignment?) -> JSONValue {
        guard let assignment else { return .null }
        return ["variation_id": .string(assignment.variationID.string), "source": .string("\(assignment.source)")]
    }
}
