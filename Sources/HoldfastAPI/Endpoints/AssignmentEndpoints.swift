import Bucketing
import HTTPServer
import Storage

/// `/v1/profiles/{user_id}/experiments/{experiment_id}`: one assignment. `PUT` is the admin's override, which stays,
/// whatever app servers save, until an admin removes it.
struct AssignmentEndpoints {
    let audit: any AuditStore
    let reader: any ProfileReader
    let projects: ProjectView

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
            let variationID = try request.withBody { bytes throws(Problem) in try self.variationID(bytes, of: experimentID) }
            let operation = ProfileChange.Operation.override(experimentID: experimentID, variationID: variationID)
            audit.submit(ProfileChange(userID: userID, operation: operation), by: call.author(request)) { result in
                switch result {
                case .success(let result): Self.send(result.profile, experimentID, to: call)
                case .failure(let error): call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    /// `{"variation_id":…}` or `{"variation_key":…}`, checked against every datafile that has the experiment.
    private func variationID(_ bytes: UnsafeRawBufferPointer, of experimentID: Identifier) throws(Problem) -> Identifier {
        let value = try ProfileBody.parse(bytes)
        guard let object = value.object else {
            throw Problem(.badRequest, "an override is an object, not \(value.kind)", at: [])
        }
        let experiments = projects.experiments(id: experimentID)
        if let key = try object.optionalText("variation_key") {
            guard object["variation_id"] == nil else {
                throw Problem(.badRequest, "variation_id and variation_key are both given", at: ["variation_key"])
            }
            for experiment in experiments {
                if let variation = experiment.variation(key: Identifier(key)) { return variation.id }
            }
            throw unknownVariation(experiments, at: ["variation_key"])
        }
        guard let variation = object["variation_id"] else {
            throw Problem(.badRequest, "variation_id is missing", at: ["variation_id"])
        }
        let variationID = try ProfileBody.variationID(variation, at: ["variation_id"])
        guard experiments.isEmpty || experiments.contains(where: { $0.variation(id: variationID) != nil }) else {
            throw unknownVariation(experiments, at: ["variation_id"])
        }
        return variationID
    }

    private func unknownVariation(_ experiments: [Experiment], at pointer: JSONPointer) -> Problem {
        guard !experiments.isEmpty else {
            return Problem(.unprocessableContent, "no datafile has this experiment; give the variation_id", at: pointer)
        }
        let variations = experiments.flatMap(\.variations)
        let list = variations.map { "\($0.key) (id \($0.id))" }.joined(separator: ", ")
        var problem = Problem(
            .unprocessableContent, "the experiment has no such variation; it has: \(list)", at: pointer)
        problem.members = [
            (
                "variations",
                .array(variations.map { ["id": .string($0.id.string), "key": .string($0.key.string)] })
            )
        ]
        return problem
    }

    func delete(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let userID = try request.userID()
            let experimentID = try request.experimentID()
            let change = ProfileChange(userID: userID, operation: .remove(experimentID: experimentID))
            audit.submit(change, by: call.author(request)) { result in
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
