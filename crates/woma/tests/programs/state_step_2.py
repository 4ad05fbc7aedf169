# program: clean it in a second call
# session: continues state_step_1
# sees: Mean score: 80.0
# not: New session

df = df.dropna()
print(f"Mean score: {df['score'].mean()}")
