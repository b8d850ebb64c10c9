import Bucketing
import Definitions
import JSON
import Storage

/// What a change of definitions can do to enrolled users: those who have a stored assignment in a running
/// experiment.
///
/// In the model of the SDKs a flag's experiments decide in their order, and each takes every user whom it admits. So an
/// experiment moves users of those behind it, if it comes before them, runs again, or takes more users than before. A
/// variation that is removed moves its users, and so does a rule that is left out.
///
/// Stopping an experiment is no move, because a request that names it asks for just that: a status, a flag that is
/// turned off, a `DELETE`. The edited datafile then has the experiment, and does not run it.
///
/// A segment whose conditions change is compared like an audience: the datafile stays, and its experiments take others.
struct DefinitionMoves: Sendable {
    /// Why users are moved.
    enum Cause: Hashable {
        /// Another experiment of the flag takes them, because it is decided before theirs.
        case earlierExperiment(Identifier)
        /// The variation that they have is gone.
        case variationRemoved(Identifier)
        /// The flag no longer has their experiment.
        case ruleRemoved
        /// The datafile no longer has their experiment.
        case experimentRemoved
        /// The datafile forces another variation on them.
        case whitelist
        /// A holdout keeps them out.
        case holdout(Identifier)
    }

    /// What becomes of one user.
    struct Move: Hashable {
        /// The key of the experiment that the user is enrolled in.
        var experiment: Identifier
        var cause: Cause
        /// Whether the user gets another variation; otherwise the same one, but of another experiment.
        var changesVariation: Bool
    }

    /// The experiments that decide one after the other: those of a flag, or one that is in no flag.
    private struct Sequence {
        /// `nil` for an experiment that is in no flag.
        let flagKey: Identifier?
        let former: [Experiment]
        let edited: [Experiment]
        /// The experiments whose users may be moved.
        let affected: Set<Identifier>
    }

    private let former: Datafile
    private let edited: Datafile
    private let sequences: [Sequence]
    private let forcedVariations: [Identifier: [Identifier: Identifier]]
    private let schema: AttributeSchema
    private let editedSchema: AttributeSchema
    /// Whether an experiment that may take users has an audience which depends on stored attributes.
    let needsAttributes: Bool

    /// Compares the definitions of a project, without looking at users.
    ///
    /// - Parameter segments: those whose conditions change.
    init(from project: Project, to compiled: CompiledDefinitions, changing segments: [Segment] = []) {
        let (former, edited) = (project.datafile, compiled.datafile)
        self.former = former
        self.edited = edited
        forcedVariations = project.forcedVariations
        schema = project.schema
        editedSchema = segments.isEmpty ? schema : schema.with(segments: segments)
        let changing = Set(segments.flatMap { former.keys(usingSegment: $0.name) })
        let changesHoldouts = project.definitions.holdoutLists != compiled.definitions.holdoutLists
        // Of most flags nothing has changed.
        let comparesAll = changesHoldouts || !changing.isEmpty
        var inFlags: Set<Identifier> = []
        var sequences: [Sequence] = []
        func compare(_ flagKey: Identifier?, _ before: [Experiment], _ after: [Experiment]) {
            // Who concludes an experiment asks for the winner.
            let before = before.filter { edited.experiment(id: $0.id)?.isConcluded != true }
            var affected = Self.affected(before, after) {
                !changing.contains($0.key) && Self.takesSame($0, $1, former, edited)
            }
            if changesHoldouts {
                affected.formUnion(before.lazy.filter(\.isRunning).map(\.id))
            }
            guard !affected.isEmpty else { return }
            sequences.append(Sequence(flagKey: flagKey, former: before, edited: after, affected: affected))
        }
        for flag in comparesAll ? former.flags : former.flags(unlike: edited) {
            guard let now = edited.flag(key: flag.key) else { continue }
            for experiment in flag.experiments { inFlags.insert(experiment.id) }
            if !now.annotations.isTurnedOff { compare(flag.key, flag.experiments, now.experiments) }
        }
        for experiment in comparesAll ? former.experiments : former.experiments(unlike: edited)
        where !former.isDeliveryRule(experiment.id) && !inFlags.contains(experiment.id) {
            compare(nil, [experiment], edited.experiment(id: experiment.id).map { [$0] } ?? [])
        }
        self.sequences = sequences
        let asked = schema.attributes(for: former.mentions) + editedSchema.attributes(for: edited.mentions)
        needsAttributes =
            !asked.isEmpty && (changesHoldouts || sequences.contains { $0.edited.contains { !$0.isForEverybody } })
    }

    /// Whether the change can move nobody, whoever is enrolled.
    var isEmpty: Bool { sequences.isEmpty }

    // MARK: Experiments

    /// Returns the experiments whose users may be moved.
    ///
    /// - Parameter takesSame: whether an experiment takes the same users before and after the change.
    private static func affected(
        _ before: [Experiment], _ after: [Experiment], takesSame: (Experiment, Experiment) -> Bool
    ) -> Set<Identifier> {
        var affected: Set<Identifier> = []
        for (index, experiment) in before.enumerated() where experiment.isRunning {
            guard let position = after.firstIndex(where: { $0.id == experiment.id }) else {
                affected.insert(experiment.id)
                continue
            }
            let now = after[position]
            guard now.isRunning else { continue }
            let hasAllVariations = experiment.variations.allSatisfy { now.variation(id: $0.id) != nil }
            let newlyTakes = after[..<position].contains { earlier in
                guard earlier.isRunning else { return false }
                let known = before[..<index].first { $0.id == earlier.id }
                return known.map { !takesSame($0, earlier) } ?? true
            }
            if !hasAllVariations || experiment.forcedVariations != now.forcedVariations || newlyTakes {
                affected.insert(experiment.id)
            }
        }
        return affected
    }

    /// Whether an experiment takes the same users before and after the change.
    private static func takesSame(
        _ before: Experiment, _ after: Experiment, _ former: Datafile, _ edited: Datafile
    ) -> Bool {
        before === after
            || before.isRunning == after.isRunning && before.trafficAllocation == after.trafficAllocation
                && before.exclusionGroup?.id == after.exclusionGroup?.id
                && before.exclusionGroup?.trafficAllocation == after.exclusionGroup?.trafficAllocation
                && before.forcedVariations == after.forcedVariations
                && before.variations.map(\.id) == after.variations.map(\.id)
                && former.audience(of: before) == edited.audience(of: after)
    }

    // MARK: Users

    /// Whether a user is enrolled in an experiment whose users may be moved.
    func concerns(_ profile: ProfileRecord) -> Bool {
        sequences.contains { sequence in sequence.affected.contains { profile[$0] != nil } }
    }

    /// Returns what a user's profile and attributes say to decisions before the change.
    func stored(_ profile: ProfileRecord, of userID: Identifier, _ record: AttributeRecord?) -> StickyAssignments {
        stored(profile, of: userID, record, schema)
    }

    private func stored(
        _ profile: ProfileRecord, of userID: Identifier, _ record: AttributeRecord?, _ schema: AttributeSchema
    ) -> StickyAssignments {
        StickyAssignments(
            profile, forced: forcedVariations[userID],
            attributes: schema.isEmpty ? nil : StoredAttributes(schema: schema, record: record))
    }

    /// Returns how a user is moved, once for each flag.
    func moves(of userID: Identifier, _ profile: ProfileRecord, _ record: AttributeRecord?) -> [Move] {
        let before = stored(profile, of: userID, record, schema)
        let after = stored(profile, of: userID, record, editedSchema)
        return sequences.compactMap { move(of: userID, before, after, in: $0) }
    }

    private func move(
        of userID: Identifier, _ before: StickyAssignments, _ after: StickyAssignments, in sequence: Sequence
    ) -> Move? {
        let (now, next) = (DecisionService(datafile: former), DecisionService(datafile: edited))
        for (index, experiment) in sequence.former.enumerated() where experiment.isRunning {
            guard let held = now.heldVariation(of: experiment, for: userID, stored: before) else { continue }
            guard sequence.affected.contains(experiment.id), before.profile?[experiment.id] != nil else { return nil }
            func move(_ cause: Cause, to variation: Variation?) -> Move {
                Move(
                    experiment: experiment.key, cause: cause,
                    changesVariation: variation.map { $0.key != held.variation.key } ?? true)
            }
            func variationOfFlag() -> Variation? {
                sequence.flagKey.flatMap { next.decide($0, for: User(id: userID), stored: after)?.value.variation }
            }
            guard let position = sequence.edited.firstIndex(where: { $0.id == experiment.id }) else {
                return move(sequence.flagKey == nil ? .experimentRemoved : .ruleRemoved, to: variationOfFlag())
            }
            for earlier in sequence.edited[..<position] where earlier.isRunning {
                if let taken = next.heldVariation(of: earlier, for: userID, stored: after) {
                    return move(.earlierExperiment(earlier.key), to: taken.variation)
                }
                guard let taken = next.possibleEnrollment(of: earlier, for: userID, stored: after) else { continue }
                let known = sequence.former[..<index].first { $0.id == earlier.id }
                // Whom it takes anyway, the change does not move.
                guard known.flatMap({ now.possibleEnrollment(of: $0, for: userID, stored: before) }) == nil else {
                    continue
                }
                return move(.earlierExperiment(earlier.key), to: taken)
            }
            let edited = sequence.edited[position]
            guard edited.isRunning else { return nil }
            let user = User(id: userID)
            if let holdout = next.assign(edited, for: user, stored: after).holdout,
                now.assign(experiment, for: user, stored: before).holdout == nil
            {
                return move(.holdout(holdout.key), to: nil)
            }
            guard let kept = next.heldVariation(of: edited, for: userID, stored: after)?.variation else {
                return move(.variationRemoved(held.variation.key), to: variationOfFlag())
            }
            return kept.id == held.variation.id ? nil : move(.whitelist, to: kept)
        }
        return nil
    }
}

extension AttributeSchema {
    /// Returns the schema with attributes and segments, each in the place of the one with its name if there is one.
    func with(attributes new: [AttributeDefinition] = [], segments edited: [Segment] = []) -> AttributeSchema {
        let names = Set(new.map(\.name))
        // The store numbers them; until then each needs a number of its own.
        var number = attributes.map(\.number).max() ?? 0
        let numbered = new.map { definition in
            if let former = attribute(definition.name) { return definition.numbered(former.number) }
            number += 1
            return definition.numbered(number)
        }
        return AttributeSchema(
            attributes: attributes.filter { !names.contains($0.name) } + numbered,
            segments: Array(segments.values) + edited)
    }
}
