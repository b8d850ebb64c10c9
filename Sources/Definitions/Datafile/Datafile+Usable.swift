public import Bucketing
package import JSON

extension Datafile {
    /// Parses uploaded and stored datafiles. The depth is limited, so that a hostile upload cannot exhaust the stack.
    private static let parser = JSONParser(maximumDepth: 128)

    /// Parses and compiles a datafile.
    ///
    /// - Throws: 400 with every wrong member as `errors`.
    package static func usable(
        _ content: [UInt8], similarTo former: Datafile? = nil
    ) throws(CoreError) -> Datafile {
        try usable(try parsed(content), similarTo: former)
    }

    /// Compiles a parsed datafile.
    ///
    /// - Parameters:
    ///   - former: a datafile that is probably similar, so that less has to be compiled; `nil` for none.
    ///   - edit: the difference between the two; `nil` if the caller does not know it.
    /// - Throws: 400 with every wrong member as `errors`.
    package static func usable(
        _ value: JSONValue, similarTo former: Datafile? = nil, _ edit: DatafileEdit? = nil
    ) throws(CoreError) -> Datafile {
        do throws(DatafileError) {
            return try Datafile.compile(value, similarTo: former, edit)
        } catch {
            let first = error.problems.first
            var refusal = CoreError(
                .invalid, "the datafile is not usable: \(first?.description ?? "it is empty")", at: first?.pointer)
            refusal.faults = error.problems
            throw refusal
        }
    }

    /// Parses a datafile, without compiling it.
    ///
    /// - Throws: 400 if the text is not JSON.
    package static func parsed(_ content: [UInt8]) throws(CoreError) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(content)
        } catch {
            throw CoreError(error, in: "the datafile")
        }
    }

    /// Returns the document of a datafile that is stored in parts.
    ///
    /// - Parameter former: a datafile that is probably similar. Parts that both have are not parsed again.
    package static func document(
        _ parts: DatafileParts, similarTo former: DatafileParts.Known? = nil
    ) throws(CoreError) -> JSONValue {
        do throws(JSONError) {
            return try parts.document(similarTo: former)
        } catch {
            throw CoreError(error, in: "the datafile")
        }
    }

    /// Compiles a datafile that is about to be activated. In contrast to ``usable(_:similarTo:)``, this also checks
    /// ids. Active datafiles are not checked, because they may have been activated by a release without this rule.
    ///
    /// - Throws: 400 if the datafile is not usable, or if the id of an experiment or a variation does not fit into a
    ///   profile.
    package static func accepted(_ content: [UInt8]) throws(CoreError) -> Datafile {
        let datafile = try usable(content)
        // Delivery rules are exempt: their assignments are not stored, and their ids have another form.
        for experiment in datafile.experimentsBesideRules {
            do throws(CoreError) {
                _ = try NameRule.checkExperimentID(experiment.id.string, at: nil)
            } catch {
                throw CoreError(
                    .invalid, "\(error.detail), in the experiment '\(experiment.key)'")
            }
            for variation in experiment.variations where !NameRule.isVariationID(variation.id.string.utf8) {
                throw CoreError(
                    .invalid,
                    "a variation id must be 1 to 255 bytes long; got \(variation.id.string.utf8.count), in the variation "
                        + "'\(variation.key)' of the experiment '\(experiment.key)'")
            }
        }
        return datafile
    }
}

extension Datafile {
    /// Warnings about a usable datafile: experiments that this server decides differently from the reference SDK.
    public var warnings: [String] {
        let names = experiments.filter { $0.gate != nil }.map { "'\($0.key)'" }
        guard !names.isEmpty else { return [] }
        let others = names.count > 20 ? " and \(names.count - 20) more" : ""
        return [
            "a contextual bandit (`cmab`) chooses the variations of \(names.prefix(20).joined(separator: ", "))\(others): "
                + "this server gives them by weights that are the same for all users, whatever their attributes"
        ]
    }

    /// The experiments without the targeted rollouts of flags, which the Optimizely Agent does not count as experiments
    /// either.
    @inlinable
    public var experimentsBesideRules: [Experiment] {
        experiments.filter { !isDeliveryRule($0.id) }
    }

    /// Returns the experiment with a key, or else with an id.
    @inlinable
    public func experiment(keyOrID name: Identifier) -> Experiment? {
        experiment(key: name) ?? experiment(id: name)
    }

    /// Returns the experiment with a key as the Optimizely Agent knows it: `nil` for a targeted rollout.
    @inlinable
    public func agentExperiment(key: Identifier) -> Experiment? {
        experiment(key: key).flatMap { isDeliveryRule($0.id) ? nil : $0 }
    }
}
