# program: use a frame that another conversation made
# outcome: raised
# sees: NameError: name 'df' is not defined
# sees: Python has just started in this session

print(df.describe())
