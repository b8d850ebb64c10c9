import Bucketing
import HTTPServer
import Storage

/// `/v1/profiles/{user_id}/experiments/{experiment_id}`: one assignment. `PUT` is the admin's override, which stays,
/// whatever app servers save, until an admin removes it.
struct AssignmentEndpoints {
    let store: any ProfileStore
    let reader: any ProfileReader

    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let userID = try request.userID()
            let experimentID = try request.experimentID()
            reader.profile(of: userID) { result in
                switch result {
                case .success(let profile): Self.send(profile, experimentID, to: call)
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    private static func send(_ profile: ProfileRecord?, _ experimentID: Identifier, to call: Call) {
        guard let assignment = profile?[experimentID] else {
            return call.fail(Problem(.notFound, "this user has no assignment in this experiment"))
        }
        call.answer(json: ProfileJSON.encode(experimentID, assignment))
    }

    func put(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let userID = try request.userID()
            let experimentID = try request.experimentID()
            let variationID = try request.withBody { bytes throws(Problem) in try Self.variationID(bytes) }
            let operation = ProfileChange.Operation.override(experimentID: experimentID, variationID: variationID)
            store.submit(ProfileChange(userID: userID, operation: operation)) { result in
                switch result {
                case .success(let result): Self.send(result.profile, experimentID, to: call)
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    private static func variationID(_ bytes: UnsafeRawBufferPointer) throws(Problem) -> Identifier {
        let value = try ProfileBody.parse(bytes)
        guard let object = value.object else {
            throw Problem(.badRequest, "an override is an object, not \(value.kind)", at: [])
        }
        guard let variation = object["variation_id"] else {
            throw Problem(.badRequest, "variation_id is missing", at: ["variation_id"])
        }
        return try ProfileBody.variationID(variation, at: ["variation_id"])
    }

    func delete(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let userID = try request.userID()
            let experimentID = try request.experimentID()
            store.submit(ProfileChange(userID: userID, operation: .remove(experimentID: experimentID))) { result in
                switch result {
                case .success(let result) where result.changed:
                    call.answer(Response(.noContent))
                case .success:
                    call.fail(Problem(.notFound, "this user has no assignment in this experiment"))
                case .failure(let error):
                    call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }
}
