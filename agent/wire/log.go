package wire

// StepBegun precedes a step's name in the Log that says that the step is begun.
const StepBegun = "step "
