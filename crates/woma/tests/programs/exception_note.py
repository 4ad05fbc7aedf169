# program: raise an error that has a note
# outcome: raised
# sees: PipelineError: step 2 failed
# sees: while reading part 7
# not: Error: PipelineError

class PipelineError(Exception):
    pass

error = PipelineError("step 2 failed")
error.add_note("while reading part 7")
raise error
